package skills

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gateway/store/atomicfile"
)

// manifest is the file in which [Unpack] records the files that it has written, so that it removes
// no other file.
const manifest = ".unpacked"

// Unpack writes the built-in skills into a folder, which it creates. It removes files that
// it wrote earlier and that are no longer built in. Unchanged files are not written again.
func Unpack(dir string) error {
	if err := unpack(dir, builtins, "builtin"); err != nil {
		return fmt.Errorf("skills: unpack: %w", err)
	}
	return nil
}

// unpack writes the files of from below top into dir. The manifest is written last, so that after a
// kill the next call still removes what the earlier manifest lists.
func unpack(dir string, from fs.FS, top string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var names []string
	err = fs.WalkDir(from, top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, top+"/")
		names = append(names, name)
		if err := root.MkdirAll(filepath.FromSlash(path.Dir(name)), 0o700); err != nil {
			return err
		}
		return update(root, filepath.FromSlash(name), data)
	})
	if err != nil {
		return err
	}
	before, err := current(root, manifest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for old := range strings.Lines(string(before)) {
		if old = strings.TrimSpace(old); !slices.Contains(names, old) {
			if err := discard(root, old); err != nil {
				return err
			}
		}
	}
	return update(root, manifest, []byte(strings.Join(names, "\n")+"\n"))
}

// update writes a file unless it has that content already.
func update(root *os.Root, name string, data []byte) error {
	if was, err := current(root, name); err == nil && bytes.Equal(was, data) {
		return nil
	}
	return atomicfile.Write(root, name, data, 0o600)
}

// current returns the content of an unpacked file.
func current(root *os.Root, name string) ([]byte, error) {
	f, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// discard removes a file that an older version has unpacked, and folders that become
// empty.
func discard(root *os.Root, name string) error {
	name = filepath.FromSlash(name)
	if !filepath.IsLocal(name) || name == "." {
		return nil
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if root.Remove(dir) != nil {
			break // not empty
		}
	}
	return nil
}
