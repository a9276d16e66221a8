//go:build unix

package files

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"gateway/agent/tool"
)

// TestSpecialFiles would hang if the pipe were opened for reading.
func TestSpecialFiles(t *testing.T) {
	f := newFixture(t)
	if err := syscall.Mkfifo(filepath.Join(f.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(f.dir) // a socket's path must be short
	l, err := net.Listen("unix", "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, what := range map[string]string{"pipe": "is a pipe", "socket": "is a socket"} {
		_, err := f.call(t, "read_file", "path", name)
		wantError(t, err, what, "only regular files")
		_, err = f.call(t, "list_dir", "path", name)
		wantError(t, err, what, "not a directory")
	}
	got, err := f.call(t, "list_dir")
	if want := "pipe (pipe)\nsocket (socket)"; err != nil || got != want {
		t.Errorf("list_dir = %q, %v; want %q", got, err, want)
	}
}

func TestDevice(t *testing.T) {
	w := New(Options{Workspace: openRoot(t, "/dev"), Path: "/dev"})
	_, err := w.Open(tool.Call{}, "zero")
	wantError(t, err, "is a device")
	_, err = w.writeFile(t.Context(), tool.Call{}, writeArgs{Path: "null", Content: "x"})
	wantError(t, err, "is a device")
}
