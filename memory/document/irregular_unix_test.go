//go:build unix

package document

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe, a link or a huge file in the place of a document neither blocks a read nor shows other
// files.
func TestReadIrregular(t *testing.T) {
	f := newFixture(t, nil)
	secret := filepath.Join(f.scopes, "person-2", User)
	write(t, secret, "secret")
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, "secret")
	path := filepath.Join(f.scopes, string(ann), User)
	odd := map[string]func() error{
		"directory":    func() error { return os.Mkdir(path, 0o700) },
		"pipe":         func() error { return syscall.Mkfifo(path, 0o600) },
		"link out":     func() error { return os.Symlink(outside, path) },
		"link aside":   func() error { return os.Symlink("../person-2/USER.md", path) },
		"link to self": func() error { return os.Symlink(User, path) },
		"huge": func() error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
		"folder is a link": func() error {
			return errors.Join(os.Remove(filepath.Dir(path)), os.Symlink("person-2", filepath.Dir(path)))
		},
	}
	for name, make := range odd {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), make()); err != nil {
				t.Fatal(err)
			}
			doc := f.Doc(ann, User)
			if doc.Text != "" || doc.Hash != "" ||
				!strings.HasPrefix(doc.Prompt(), "[USER.md can't be read: ") {
				t.Errorf("Doc = %+v", doc)
			}
			if text, _, err := f.Read(ann, User); err == nil || text != "" {
				t.Errorf("Read = %q, %v; want an error", text, err)
			}
			if err := f.Save(ann, User, "new", ""); err == nil {
				t.Error("Save went well")
			}
		})
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
		t.Errorf("another scope's document is %q, %v", got, err)
	}
}
