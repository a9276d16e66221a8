// Package atomicfile replaces files atomically: readers see either the old or the new content,
// even after a crash.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the file name below root. Its folder must exist. A crash can leave a temporary
// file ".gateway-*.tmp" in the folder.
func Write(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	return write(root, name, data, mode, -1)
}

// write is [Write]. The group of the file becomes gid, unless gid is -1.
func write(root *os.Root, name string, data []byte, mode fs.FileMode, gid int) error {
	dir := filepath.Dir(name)
	temp := filepath.Join(dir, ".gateway-"+rand.Text()+".tmp")
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(data)
	if gid != -1 {
		err = errors.Join(err, f.Chown(-1, gid))
	}
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), root.Remove(temp))
	}
	if d, err := root.Open(dir); err == nil {
		_ = d.Sync() // some systems can't sync folders; the file itself is synced
		_ = d.Close()
	}
	return nil
}

// WritePath is [Write] for a path. Other users must not be able to change its folder.
func WritePath(path string, data []byte, mode fs.FileMode) error {
	return WriteFor(path, data, mode, -1)
}

// WriteFor is [WritePath] for a file of a group. If gid is -1, it is that of the process.
func WriteFor(path string, data []byte, mode fs.FileMode, gid int) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(write(root, filepath.Base(path), data, mode, gid), root.Close())
}
