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
	dir := filepath.Dir(name)
	temp := filepath.Join(dir, ".gateway-"+rand.Text()+".tmp")
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(data)
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
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(Write(root, filepath.Base(path), data, mode), root.Close())
}
