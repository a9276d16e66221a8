// Package files has the tools that look at files: "read_file" and "list_dir".
//
// They reach one directory tree, the workspace, and in it, as "media", the files of their own
// conversation, each through an [os.Root]: the operating system, not string arithmetic, keeps
// paths and symbolic links inside.
// Devices, pipes and sockets are never opened. The package owns no state and changes no file.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gateway/agent/tool"
	"gateway/bus"
)

// Files are what the tools reach. They may be used concurrently.
type Files struct {
	root  *os.Root
	path  string   // absolute, as the model knows it
	media *os.Root // or nil
}

// New returns the Files of the tree root, whose absolute path is shown to the
// model as path. In the place of its folder "media" they show, of the tree media, what belongs to
// the conversation; nil means nothing. The caller closes both when no tool runs any more.
func New(root *os.Root, path string, media *os.Root) *Files {
	return &Files{root: root, path: filepath.Clean(path), media: media}
}

// Tools returns the tools.
func (w *Files) Tools() []tool.Tool {
	tools := []tool.Tool{
		tool.New("read_file", readDescription, tool.Pure, w.readFile),
		tool.New("list_dir", listDescription, tool.Pure, w.listDir),
	}
	for i := range tools {
		tools[i].Least = bus.User // guests have no hands
	}
	return tools
}

// A place is a path within a tree.
type place struct {
	root *os.Root
	path string
}

// local returns the place that a model means by name: a relative path, or an absolute one within
// the workspace.
func (w *Files) local(c tool.Call, name string) (place, error) {
	rel := filepath.Clean(name) // "." for ""
	if filepath.IsAbs(rel) {
		var err error
		if rel, err = filepath.Rel(w.path, rel); err != nil {
			return place{}, w.outside(name)
		}
	}
	if !filepath.IsLocal(rel) {
		return place{}, w.outside(name)
	}
	if first, rest, _ := strings.Cut(filepath.ToSlash(rel), "/"); first == "media" && w.media != nil {
		// Of the files that people send, each conversation sees its own.
		return place{w.media, filepath.Join(filepath.FromSlash(c.Address.Folder()), rest)}, nil
	}
	return place{w.root, rel}, nil
}

func (w *Files) outside(name string) error {
	return fmt.Errorf("%q is outside the workspace; only files in %s can be reached", name, w.path)
}

// explain returns err, from an operation on name, for the model.
func (w *Files) explain(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %q in %s; list_dir shows what there is", name, w.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may not be read: permission denied", name)
	case strings.HasSuffix(err.Error(), "path escapes from parent"): // os exports no error for it
		return fmt.Errorf("%q is or contains a symbolic link that leads out of the workspace "+
			"or is absolute; such links are not followed", name)
	}
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err // without the path as the system sees it
	}
	return fmt.Errorf("%q: %w", name, err)
}

// kind returns what a file of this mode is called, or "" for a regular one.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return ""
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// printable returns a file's name, quoted if it has signs that could be taken for
// more than a name.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}
