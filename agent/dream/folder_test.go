package dream

import (
	"os"
	"path/filepath"

	"gateway/memory"
	"gateway/memory/document"
)

// A folder is documents on the disk.
type folder struct{ dir string }

func (f folder) Read(s memory.Scope, name string) (string, string, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, string(s), name))
	if os.IsNotExist(err) {
		return "", "", nil
	}
	return string(b), "h" + string(b), err
}

func (f folder) Save(s memory.Scope, name, text, base string) error {
	_, hash, err := f.Read(s, name)
	if err != nil {
		return err
	}
	if hash != base {
		return document.ErrChanged
	}
	file := filepath.Join(f.dir, string(s), name)
	os.MkdirAll(filepath.Dir(file), 0o700)
	return os.WriteFile(file, []byte(text), 0o600)
}

func (f folder) Create(s memory.Scope, name, text string) error {
	if _, hash, err := f.Read(s, name); err != nil || hash != "" {
		return document.ErrExists
	}
	return f.Save(s, name, text, "")
}
