package app

import (
	"os"
	_ "time/tzdata" // zone names for systems without zone data

	"gateway/agent/extract"
	"gateway/agent/tools/shell/sandbox"
	"gateway/agent/tools/web"
)

// RunHelper runs a helper if this program started itself as one. ours reports whether it did.
func RunHelper() (code int, ours bool) {
	if len(os.Args) < 2 {
		return 0, false
	}
	switch os.Args[1] {
	case sandbox.Argument: // the supervisor of a command
		return sandbox.Main(os.Args[2:]), true
	case extract.Argument: // the decoder of a file
		return extract.Main(map[string]extract.Func{web.KindPage: web.Page}), true
	}
	return 0, false
}
