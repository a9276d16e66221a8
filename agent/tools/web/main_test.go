package web

import (
	"os"
	"testing"

	"gateway/agent/extract"
	"gateway/store/storetest"
)

// The test binary also runs as the child process that decodes files.
func TestMain(m *testing.M) {
	storetest.InMemory()
	if len(os.Args) > 1 && os.Args[1] == extract.Argument {
		os.Exit(extract.Main(map[string]extract.Func{KindPage: Page}))
	}
	os.Exit(m.Run())
}
