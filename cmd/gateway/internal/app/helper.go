package app

import (
	"os"
	_ "time/tzdata" // zones by name also where the system has none

	"gateway/agent/extract"
	"gateway/agent/tools/shell/sandbox"
	"gateway/agent/tools/web"
)

// RunHelper does what this program is started again for by itself, if that is why it runs.
func RunHelper() (code int, ours bool) {
	if len(os.Args) < 2 {
		return 0, false
	}
	switch os.Args[1] {
	case sandbox.Argument: // as the supervisor of a command
		return sandbox.Main(os.Args[2:]), true
	case extract.Argument: // to decode a file
		return extract.Main(map[string]extract.Func{web.KindPage: web.Page}), true
	}
	return 0, false
}
