package agent

import (
	"os"
	"testing"

	"gateway/agent/extract"
	"gateway/store/storetest"
)

// TestMain also lets the test binary decode files, as a child process of its tests.
func TestMain(m *testing.M) {
	storetest.InMemory()
	if len(os.Args) > 1 && os.Args[1] == extract.Argument {
		os.Exit(extract.Main(nil))
	}
	os.Exit(m.Run())
}
