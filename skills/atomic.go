package skills

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeFile replaces a file by one with the given content, or leaves it as it is.
func writeFile(root *os.Root, name string, data []byte) error {
	temp := filepath.Join(filepath.Dir(name), temporary())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), root.Remove(temp))
	}
	return nil
}
