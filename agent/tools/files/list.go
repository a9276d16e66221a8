package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"gateway/agent/tool"
)

// The bounds of one call of list_dir, in entries.
const (
	maxShown = 500
	maxRead  = 20_000
)

const listDescription = `Lists a directory of the workspace by name: directories end in "/", ` +
	`files come with their size in bytes. It does not descend. Use it before read_file when a ` +
	`path is not certain.`

type listArgs struct {
	Path string `json:"path,omitempty" jsonschema:"path within the workspace; by default all of it"`
}

func (w *Files) listDir(ctx context.Context, c tool.Call, a listArgs) (tool.Result, error) {
	dir, err := w.local(c, a.Path)
	if err != nil {
		return tool.Result{}, err
	}
	name := cmp.Or(a.Path, ".")
	entries, err := w.readDir(name, dir)
	if err != nil {
		return tool.Result{}, err
	}
	if len(entries) == 0 {
		return tool.Result{Text: "(the directory is empty)"}, nil
	}
	var text strings.Builder
	for _, e := range entries[:min(len(entries), maxShown)] {
		if err := ctx.Err(); err != nil {
			return tool.Result{}, err
		}
		text.WriteString(w.line(dir, e) + "\n")
	}
	switch {
	case len(entries) == maxRead:
		fmt.Fprintf(&text, "\n(the first %d of more than %d entries)\n", maxShown, maxRead)
	case len(entries) > maxShown:
		fmt.Fprintf(&text, "\n(the first %d of %d entries)\n", maxShown, len(entries))
	}
	return tool.Result{Text: strings.TrimSuffix(text.String(), "\n")}, nil
}

// readDir returns the entries of a directory, which a model calls
// name, by name.
func (w *Files) readDir(name string, at place) ([]fs.DirEntry, error) {
	info, err := at.root.Stat(at.path)
	if err != nil {
		return nil, w.explain(name, err)
	}
	if k := cmp.Or(kind(info.Mode()), "file"); k != "directory" {
		return nil, fmt.Errorf("%q is a %s, not a directory", name, k)
	}
	f, err := at.root.Open(at.path)
	if err != nil {
		return nil, w.explain(name, err)
	}
	defer f.Close()
	entries, err := f.ReadDir(maxRead)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, w.explain(name, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// line describes an entry of the directory at a place.
func (*Files) line(at place, e fs.DirEntry) string {
	name := printable(e.Name())
	switch k := kind(e.Type()); k {
	case "directory":
		return name + "/"
	case "symbolic link":
		target, err := at.root.Readlink(filepath.Join(at.path, e.Name()))
		if err != nil {
			return name + " (symbolic link)"
		}
		return name + " -> " + printable(target)
	case "":
		info, err := at.root.Lstat(filepath.Join(at.path, e.Name()))
		if err != nil {
			return name // gone meanwhile
		}
		return fmt.Sprintf("%s  %d", name, info.Size())
	default:
		return name + " (" + k + ")"
	}
}
