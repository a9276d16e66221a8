package document

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"gateway/memory"
)

// Modes of created files and folders.
const (
	newFile = 0o600
	newDir  = 0o700
)

// maxSave is the greatest size of a written document, in bytes.
const maxSave = 1 << 20

// Save replaces a document if its hash is still base; otherwise it returns [ErrChanged]. A
// base of "" means that the document must not exist yet. If text or the present file can't be
// a document, the error wraps [ErrUnfit]. The scope "" stands for the shared documents. name is
// a Markdown file, or a slash-separated path below [SkillsFolder].
func (d *Documents) Save(s memory.Scope, name, text, base string) error {
	if err := d.save(key{s, name}, text, base); err != nil {
		return fmt.Errorf("document: save %s: %w", name, err)
	}
	return nil
}

// Create writes a new file. It returns [ErrExists] if the file exists.
func (d *Documents) Create(s memory.Scope, name, text string) error {
	err := d.Save(s, name, text, "")
	if errors.Is(err, ErrChanged) {
		return fmt.Errorf("document: create %s: %w", name, ErrExists)
	}
	return err
}

// checkSave returns an error if name or text is not valid for a document.
func checkSave(name, text string) error {
	elements := strings.Split(name, "/")
	odd := func(e string) bool { return e == "" || e[0] == '.' || strings.ContainsAny(e, "\\:\x00\n") }
	switch {
	case slices.ContainsFunc(elements, odd),
		len(elements) == 1 && !strings.HasSuffix(name, ".md"),
		len(elements) > 1 && elements[0] != SkillsFolder:
		return errors.New("it is not a document's name")
	case len(text) > maxSave:
		return unfitError(fmt.Sprintf("it has more than %d bytes", maxSave))
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return errNoText
	}
	return nil
}

func (d *Documents) save(k key, text, base string) error {
	if err := checkSave(k.name, text); err != nil {
		return err
	}
	root, path, err := d.place(k)
	if err != nil {
		return err
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := root.MkdirAll(filepath.Dir(path), newDir); err != nil {
		return err
	}
	if k.scope != "" {
		if err := wantFolder(root, string(k.scope)); err != nil {
			return err
		}
	}
	folder, err := root.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	file := filepath.Base(path)
	data, info, err := d.load(key{name: k.name}, folder, file)
	hash := ""
	switch {
	case err == nil:
		hash = hashOf(string(data))
	case !isNone(err):
		return err
	}
	if hash != base {
		return ErrChanged
	}
	return replace(folder, file, text, info)
}

// replace writes a temporary file beside the document and renames it, if the document is
// still the one that info describes.
func replace(folder *os.Root, file, text string, info fs.FileInfo) error {
	temp := ".gateway-" + rand.Text() + ".tmp"
	mode := fs.FileMode(newFile)
	if info != nil {
		mode = info.Mode().Perm()
	}
	f, err := folder.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, newFile)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = put(folder, temp, file, info)
	}
	_ = folder.Remove(temp) // fails if it was renamed
	if err != nil {
		return err
	}
	if dir, err := folder.Open("."); err == nil {
		_ = dir.Sync() // not supported everywhere; the file itself is synced
		_ = dir.Close()
	}
	return nil
}

// put renames the temporary file. It never overwrites a file that was created in the
// meantime.
func put(folder *os.Root, temp, file string, info fs.FileInfo) error {
	if info == nil {
		err := folder.Link(temp, file)
		if errors.Is(err, fs.ErrExist) {
			return ErrChanged
		}
		if err == nil {
			return nil
		}
		// Not all file systems have hard links.
	}
	now, err := folder.Lstat(file)
	switch {
	case isNone(err) && info == nil:
	case isNone(err), err == nil && (info == nil || !same(info, now)):
		return ErrChanged
	case err != nil:
		return err
	}
	return folder.Rename(temp, file)
}
