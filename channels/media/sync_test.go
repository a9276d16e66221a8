package media

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
)

// A file is synced before it gets its name, and its folder is synced before Put returns. So a
// row that names the file is written later, and the file survives a power loss.
func TestMediaLasts(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m := New(root, nil, nil)
	to := bus.Address{Account: "a", Chat: "1"}
	var synced []string
	m.syncFile = func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		name := path.Base(f.Name())
		if !info.IsDir() {
			if name = strings.TrimLeft(path.Ext(name), "."); info.Size() != 5 {
				t.Errorf("the file has %d bytes when it is synced, want 5", info.Size())
			}
		}
		entries, err := fs.ReadDir(root.FS(), to.Folder())
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".txt") {
				name += " named"
			}
		}
		synced = append(synced, name)
		return err
	}
	if _, err := m.Put(to, "a.txt", strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	folder := path.Base(to.Folder())
	if n := len(synced); n < 3 || synced[n-2] != "part" || synced[n-1] != folder+" named" {
		t.Errorf("synced %q, want new folders, the file, and its folder once it has its name", synced)
	}
	mine := errors.New("mine")
	m.syncFile = func(*os.File) error { return mine }
	if _, err := m.Put(to, "b.txt", strings.NewReader("hello")); !errors.Is(err, mine) {
		t.Errorf("Put = %v when the file can't be synced", err)
	}
	if files, err := m.files(t.Context()); err != nil || len(files) != 1 {
		t.Errorf("%d files are left, %v", len(files), err)
	}
}

// The total size of the files is limited at once, not only at the next hourly sweep.
func TestMediaFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		m := New(root, nil, &Options{MaxTotal: 1000})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		var names []string
		for range 30 {
			a, err := m.Put(bus.Address{Account: "a", Chat: "1"}, "a.txt",
				strings.NewReader(strings.Repeat("x", 100)))
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, a.Path)
			synctest.Wait()
		}
		files, err := m.files(ctx)
		if err != nil || len(files) > 10 || !time.Now().Equal(began) {
			t.Errorf("%d files of 100 bytes after %s, %v, want 10", len(files), time.Since(began), err)
		}
		if !slices.ContainsFunc(files, func(f storedFile) bool { return f.name == names[29] }) {
			t.Error("the newest file is gone")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
