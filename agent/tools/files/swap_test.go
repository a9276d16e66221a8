package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// If another process swaps links and directories between inside and outside all the time, no call
// reads or writes a byte outside.
func TestSwap(t *testing.T) {
	f := newFixture(t)
	outside := t.TempDir()
	writeFile(t, filepath.Join(outside, "f"), "hunter2 outside\n")
	writeFile(t, filepath.Join(outside, "sub/f"), "hunter2 outside\n")
	before := snapshot(t, outside)
	f.write(t, "real/f", "inside\n")
	f.write(t, "real/sub/f", "inside\n")
	f.write(t, "dir/f", "inside\n")
	f.write(t, "dir/sub/f", "inside\n")

	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { f.swap(t, outside, stop) })
	end := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	defer end()
	var read, written int
	for range 600 { // many rounds, because the moment between two checks is short
		for _, path := range []string{"link/f", "dir/f", "file"} {
			got, err := f.call(t, "read_file", "path", path)
			if strings.Contains(got, "hunter2") {
				t.Fatalf("read_file of %s shows the outside: %q, %v", path, got, err)
			}
		}
	}
	for range 20 {
		for _, path := range []string{"link/f", "dir/f", "dir/sub/f", "file", "link", "dir"} {
			for _, name := range []string{"read_file", "list_dir", "grep", "glob"} {
				args := map[string][]any{"grep": {"pattern", "."}, "glob": {"pattern", "**"}}[name]
				r, err := f.result(t, "s", name, append([]any{"path", path}, args...)...)
				if written := fmt.Sprint(r.Text, err); strings.Contains(written, "hunter2") {
					t.Fatalf("%s of %s shows the outside: %q", name, path, written)
				}
				if err == nil {
					read++
				}
			}
		}
	}
	for i := range 200 {
		path := fmt.Sprintf("dir/new%d", i)
		if _, err := f.call(t, "write_file", "path", path, "content", "attack"); err == nil {
			written++
		}
	}
	for range 10 {
		for _, path := range []string{"link/f", "dir/f", "dir/sub/f", "dir/new/f", "file"} {
			_, err := f.result(t, "", "write_file", "path", path, "content", "inside\n")
			if err == nil {
				written++
			}
			_, err = f.result(t, "", "apply_patch", "patch",
				"*** Update File: "+path+"\n@@\n inside\n+inside\n*** Delete File: dir/new/f\n")
			if err == nil {
				written++
			}
		}
	}
	end()
	if after := snapshot(t, outside); after != before {
		t.Errorf("what is outside was %s\nand is %s", before, after)
	}
	if read == 0 || written == 0 {
		t.Errorf("%d reads and %d writes went well; the test shows nothing", read, written)
	}
}

// swap changes the targets of link, file and dir until stop is closed.
func (f *fixture) swap(t *testing.T, outside string, stop <-chan struct{}) {
	at := func(name string) string { return filepath.Join(f.dir, name) }
	link := func(target, name string) error {
		if err := os.Symlink(target, at("spare")); err != nil {
			return err
		}
		return os.Rename(at("spare"), at(name))
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		err := errors.Join(
			os.Rename(at("dir"), at("aside")), os.Symlink(outside, at("dir")),
			link(outside, "link"), link("../"+filepath.Base(outside), "link"), link("real", "link"),
			os.Remove(at("dir")), os.Rename(at("aside"), at("dir")),
			link(filepath.Join(outside, "f"), "file"), link("real/f", "file"),
		)
		// While dir is away, a write can create the directory again.
		if err != nil {
			_ = os.RemoveAll(at("aside")) // start again
			_ = os.RemoveAll(at("dir"))
			if err := os.MkdirAll(at("dir/sub"), 0o700); err != nil {
				t.Error(err)
				return
			}
		}
	}
}
