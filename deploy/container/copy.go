package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// An ignorer says what of the build context the engine never gets, as .dockerignore has it.
type ignorer []string

func parseIgnore(text string) ignorer {
	var list ignorer
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// ignores reports whether a file is left out: the last pattern that fits it, or a folder that it
// is in, decides.
func (ig ignorer) ignores(rel string) bool {
	out := false
	for _, pattern := range ig {
		pattern, back := strings.CutPrefix(pattern, "!")
		for at := filepath.ToSlash(rel); at != "."; at = filepath.ToSlash(filepath.Dir(at)) {
			if doublestar.MatchUnvalidated(strings.TrimPrefix(pattern, "/"), at) {
				out = !back
				break
			}
		}
	}
	return out
}

// copyInto copies what a COPY names: a file to a path or into a folder, or what is in a folder.
// Files of the build context are looked at by ig.
func copyInto(root, source, target string, folder bool, ig ignorer) error {
	info, err := os.Stat(filepath.Join(root, source))
	if err != nil {
		return fmt.Errorf("container: copy: %w", err)
	}
	if !info.IsDir() {
		if ig.ignores(filepath.Clean(source)) {
			return fmt.Errorf("container: copy %s: .dockerignore leaves it out", source)
		}
		if folder {
			target = filepath.Join(target, filepath.Base(source))
		}
		return copyFile(filepath.Join(root, source), target, info.Mode().Perm())
	}
	base := filepath.Join(root, source)
	return filepath.WalkDir(base, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir // it is large, and no pattern brings it back
		}
		rel, err := filepath.Rel(root, file)
		if err != nil || !d.Type().IsRegular() || ig.ignores(rel) {
			return err
		}
		within, err := filepath.Rel(base, file)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody works in the context
		} else if err != nil {
			return err
		}
		return copyFile(file, filepath.Join(target, within), info.Mode().Perm())
	})
}

func copyFile(source, target string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("container: copy: %w", err)
	}
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("container: copy: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("container: copy: %w", err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close(), os.Chmod(target, mode)); err != nil {
		return fmt.Errorf("container: copy: %w", err)
	}
	return nil
}
