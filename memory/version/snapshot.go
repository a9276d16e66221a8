package version

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"gateway/store"
	"gateway/store/atomicfile"
)

// snapshot maps the names of files to their content.
type snapshot map[string]string

// Limits of a snapshot.
const (
	maxFile  = 1 << 20 // bytes
	maxFiles = 10_000
	maxDepth = 12 // folders
)

// read returns the files in the tree's folder. For a file that can't be read it returns
// the content in before.
func (t *Tree) read(ctx context.Context, before snapshot) (snapshot, error) {
	s := make(snapshot)
	root, err := os.OpenRoot(t.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("version: read %s: %w", t.name, err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case name == ".":
			return err
		case err != nil, d.IsDir() && (!t.isVersioned(name+"/") || strings.Count(name, "/") > maxDepth):
			t.keepBelow(s, before, name, err)
			return skip(d)
		case d.IsDir() || !d.Type().IsRegular() || !t.isVersioned(name):
			return nil
		case len(s) == maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		text, err := readFile(root, name)
		switch {
		case err == nil:
			s[name] = text
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		default:
			t.store.opts.Logger.WarnContext(ctx, "file left out of its history", "file", name, "err", err)
			t.keepBelow(s, before, name, err)
		}
		return nil
	})
	return s, store.Wrap(err, "version: read %s", t.name)
}

// skip returns the value that makes WalkDir skip d and everything below it.
func skip(d fs.DirEntry) error {
	if d != nil && d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// keepBelow copies from before into s the files at or below a name that exists but can't
// be read.
func (t *Tree) keepBelow(s, before snapshot, name string, err error) {
	// Without an error the name is not versioned, and its files don't belong into s.
	if err == nil {
		return
	}
	for n, text := range before {
		if n == name || strings.HasPrefix(n, name+"/") {
			s[n] = text
		}
	}
}

// isVersioned reports whether a file belongs to the history. The name of a folder ends in a
// slash.
func (t *Tree) isVersioned(name string) bool {
	for e := range strings.SplitSeq(strings.TrimSuffix(name, "/"), "/") {
		if strings.EqualFold(e, ".git") || !utf8.ValidString(e) ||
			strings.HasPrefix(e, ".gateway-") && strings.HasSuffix(e, ".tmp") {
			return false
		}
	}
	return t.files == nil || t.files(name)
}

// readFile reads a regular file of bounded size.
func readFile(root *os.Root, name string) (string, error) {
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("it is not a regular file of up to %d bytes", maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it is not a regular file of up to %d bytes", maxFile)
	}
	return string(text), err
}

// replace writes s to the folder, whose current content is ours.
func (t *Tree) replace(ours, s snapshot) error {
	if err := os.MkdirAll(t.folder, 0o700); err != nil {
		return fmt.Errorf("version: write %s: %w", t.name, err)
	}
	root, err := os.OpenRoot(t.folder)
	if err != nil {
		return fmt.Errorf("version: write %s: %w", t.name, err)
	}
	defer root.Close()
	// Each file is compared just before it is written, so that a person's change is not
	// overwritten.
	for _, name := range changed(ours, s) {
		text, there := s[name]
		old, was := ours[name]
		now, err := readFile(root, name)
		if is := err == nil; is != was || now != old {
			return fmt.Errorf("version: write %s: %w", name, errBusy)
		}
		if there {
			err = writeFile(root, name, text)
		} else {
			err = root.Remove(filepath.FromSlash(name))
			_ = root.Remove(filepath.FromSlash(path.Dir(name))) // fails unless the folder is empty
		}
		if err != nil {
			return fmt.Errorf("version: write %s: %w", t.name, err)
		}
	}
	return nil
}

// errBusy means that another writer changes the files at the same time.
var errBusy = errors.New("it is being changed at the same time; try again")

// changed returns the names of the files that differ between a and b.
func changed(a, b snapshot) []string {
	var names []string
	for name, text := range a {
		if other, ok := b[name]; !ok || other != text {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// writeFile replaces a file, and creates its folder.
func writeFile(root *os.Root, name, text string) error {
	file, mode := filepath.FromSlash(name), fs.FileMode(0o600)
	// A file keeps its mode.
	if info, err := root.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	if err := root.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(root, file, []byte(text), mode)
}
