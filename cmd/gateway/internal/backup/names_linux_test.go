package backup

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A command can give any names to files in the workspace. Files whose names are not valid UTF-8
// are left out. The backup has all other files and can be restored.
func TestStrangeNames(t *testing.T) {
	from, to := newHome(t).fill(), newHome(t)
	from.write(`workspace/a\b/c\..\d`, "backslashes")
	from.write("workspace/new\nline", "a line")
	want := from.files()
	delete(want, "media/tg/7/half.part")
	delete(want, "workspace/.gateway-ABC.tmp")
	from.write("workspace/\xff.txt", "no UTF-8")
	from.write("workspace/\xfe/x", "no UTF-8")
	done, err := to.restore(from.backup(), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := to.files(); !maps.Equal(got, want) {
		t.Errorf("restored\n%v\nwant\n%v", got, want)
	}
	skipped := []string{"workspace/\uFFFD", "workspace/\uFFFD.txt"}
	if got := slices.Sorted(slices.Values(done.Manifest.Skipped)); !slices.Equal(got, skipped) {
		t.Errorf("left out are %q, want %q", got, skipped)
	}
}

// A file that becomes a named pipe after its folder was listed is left out.
func TestBecomesPipe(t *testing.T) {
	from := newHome(t).fill()
	from.write("workspace/a", "a")
	from.write("workspace/b", "b")
	p, _ := from.place("workspace")
	p.Filter = func(name string, w io.Writer, r io.Reader) error {
		_, err := io.Copy(w, r)
		if name == "a" {
			err = errors.Join(err, os.Remove(from.path("workspace/b")),
				unix.Mkfifo(from.path("workspace/b"), 0o600))
		}
		return err
	}
	m, err := Write(t.Context(), "-", []Part{from.parts()[0], p}, WriteOptions{Version: "1.0",
		Stream: io.Discard, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"workspace/b"}; !slices.Equal(m.Skipped, want) {
		t.Errorf("left out are %q, want %q", m.Skipped, want)
	}
}

// A file or a folder without permissions is left out, and the backup succeeds. A command can take
// permissions away in the workspace.
func TestUnreadable(t *testing.T) {
	dir, err := os.MkdirTemp(os.TempDir(), "backup-") // another user can reach this folder
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // an error leaves it to the system
	h := home{t, filepath.Join(dir, "home")}
	for _, name := range []string{"workspace/open", "workspace/shut", "workspace/folder/x",
		"memory/shut"} {
		h.write(name, "x")
	}
	h.mkdir("scratch")
	for _, name := range []string{"workspace/shut", "workspace/folder", "memory/shut"} {
		if err := os.Chmod(h.path(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = os.Chmod(h.path("workspace/folder"), 0o700) }() // so that it can be removed
	var skipped []string
	asNobody(t, dir, func() {
		s, err := newStage(h.path("scratch"))
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = s.close() }() // the folder is removed with dir
		for _, name := range []string{"workspace", "memory"} {
			p, _ := h.place(name)
			if err := s.copyPart(t.Context(), p); err != nil {
				t.Errorf("copy of %s: %v", name, err)
			}
		}
		skipped = s.manifest.Skipped
	})
	want := []string{"workspace/folder", "workspace/shut", "memory/shut"}
	if !slices.Equal(skipped, want) {
		t.Errorf("left out are %q, want %q", skipped, want)
	}
}

// asNobody calls fn. If the test runs as root, it gives dir to a user without rights first and
// calls fn as that user.
func asNobody(t *testing.T, dir string, fn func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		fn()
		return
	}
	const nobody = 65534
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, nobody, nobody)
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setfsuid(nobody); err != nil {
			t.Error(err)
			return
		}
		fn()
	}()
	<-done
}

// A folder whose path is too long for the system is left out. A command can nest folders without a
// limit, because it can change into each of them.
func TestTooDeep(t *testing.T) {
	from, to := newHome(t).fill(), newHome(t)
	from.write("workspace/z", "behind the folder")
	want := from.files()
	delete(want, "media/tg/7/half.part")
	delete(want, "workspace/.gateway-ABC.tmp")
	dir, err := os.OpenRoot(from.path("workspace"))
	for name := strings.Repeat("d", 200); err == nil && len(dir.Name()) < 6000; {
		above := dir
		if err = above.Mkdir(name, 0o700); err == nil {
			dir, err = above.OpenRoot(name)
		}
		err = errors.Join(err, above.Close())
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		t.Fatal(err)
	}
	done, err := to.restore(from.backup(), false)
	if err != nil {
		t.Fatal(err)
	}
	got := to.files()
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, "workspace/ddd") })
	if !maps.Equal(got, want) {
		t.Errorf("restored\n%v\nwant\n%v", got, want)
	}
	skipped := done.Manifest.Skipped
	if len(skipped) != 1 || !strings.HasPrefix(skipped[0], "workspace/ddd") {
		t.Errorf("left out are %q, want the folder that is too deep", skipped)
	}
}
