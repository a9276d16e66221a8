// Package storetest makes tests that write much cheaper.
package storetest

import (
	"os"
	"runtime/debug"
	"testing"
)

// Main runs the tests of a package after [InMemory].
func Main(m *testing.M) int {
	InMemory()
	return m.Run()
}

// InMemory puts the temporary files of all tests that begin later into memory where the system has
// a file system for that, because a sync of the disk costs as much as many statements. It also lets
// the garbage collector run less often. The variables TMPDIR and GOGC override this: .ci/run sets
// TMPDIR, so that its tests with the race detector use the disk.
func InMemory() {
	if dir := memory(); dir != "" {
		_ = os.Setenv("TMPDIR", dir) // the name is valid
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// Dir is t.TempDir, but in memory as in [InMemory].
func Dir(t testing.TB) string {
	t.Helper()
	parent := memory()
	if parent == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(parent, "gateway-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// memory returns the folder of a file system in memory, or "" to use the disk.
func memory() string {
	if os.Getenv("TMPDIR") != "" || !roomy(shared) {
		return ""
	}
	return shared
}

// shared is where Linux has a file system in memory.
const shared = "/dev/shm"
