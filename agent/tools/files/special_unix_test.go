//go:build unix

package files

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gateway/agent/tool"
)

// TestSpecialFiles checks that special files are refused. It would hang if the pipe were opened
// for reading.
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
	_, err = w.editor.writeFile(t.Context(), tool.Call{}, writeArgs{Path: "null", Content: "x"})
	wantError(t, err, "is a device")
}

// A regular file may become a pipe between the check and the opening. Then the call does not
// hang, and it does not write to the pipe.
func TestBecomesPipe(t *testing.T) {
	f := newFixture(t)
	path := filepath.Join(f.dir, "file")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			spare := filepath.Join(f.dir, "spare")
			if err := os.WriteFile(spare, []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Rename(spare, path); err != nil {
				t.Error(err)
			}
			if err := syscall.Mkfifo(spare, 0o600); err != nil {
				t.Error(err)
			}
			if err := os.Rename(spare, path); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		got, err := f.call(t, "read_file", "path", "file")
		if err == nil && !strings.Contains(got, "\tx") {
			t.Errorf("read_file = %q", got)
		}
		if _, err := f.call(t, "grep", "pattern", "x"); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestSpecialFilesAreNotWritten(t *testing.T) {
	f := newFixture(t)
	if err := syscall.Mkfifo(filepath.Join(f.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, u := range users {
		if !u.writes {
			continue
		}
		_, err := f.call(t, u.name, append([]any{"path", "pipe"}, u.args...)...)
		wantError(t, err, "is a pipe and can't be written")
	}
	got, err := f.call(t, "grep", "pattern", "x")
	if err != nil || got != "(nothing matches the pattern)" {
		t.Errorf("grep = %q, %v", got, err)
	}
}
