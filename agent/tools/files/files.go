// Package files implements the tools that read and change files: "read_file", "write_file",
// "edit_file", "apply_patch", "notebook_edit", "list_dir", "glob" and "grep". [Files] returns them.
//
// The tools reach the trees of [Options]. The workspace is at the top. Its folder "media" shows the
// files of the call's conversation, for reading only, and "memory" shows the documents of the
// call's scope. AGENTS.md, the other shared documents and "skills" are the same for everybody.
// Other trees have names of their own. Each tree is an [os.Root], so the operating system, and not
// string arithmetic, keeps paths and symbolic links inside. The tools never read devices, pipes,
// sockets or files of /proc.
//
// Shared documents and skills are part of every prompt, and only admins may write them. They are in
// a separate tree; a file of the workspace with such a name can't be reached.
//
// The tools write a new file beside the old one and rename it. Other processes see the old content
// or the new one, never a part of it. If the gateway crashes in between, a file ".gateway-*.tmp" is
// left behind. When a path is a symbolic link within a tree, the tools write the link's target.
// Hard links look like other files: reading one shows the content that it shares with a name
// outside the tree; writing one leaves the old content under that other name.
//
// Each tool's description states its limits. The package remembers, in memory only, the state in
// which sessions saw some thousand files, so that a session does not overwrite changes that it has
// not seen. It has no database tables.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"gateway/agent/extract"
	"gateway/agent/suggest"
	"gateway/agent/tool"
	"gateway/bus"
	"gateway/store/plaintext"
)

// Options are the trees that the tools can access. The caller opens the trees, and closes them when
// no tool runs any more.
type Options struct {
	Workspace *os.Root // can be read and written
	Path      string   // absolute path of the workspace, as the model knows it

	// Media holds the files of all conversations. The path "media" shows those of the call's
	// conversation. It may be nil.
	Media *os.Root

	// Memory has a folder for each scope. The path "memory" shows the folder of the call's scope.
	// It may be nil.
	Memory *os.Root

	// Extract reads documents. It is required.
	Extract *extract.Extractor

	// Shared holds the shared documents and the folder "skills". They appear at the top of the
	// workspace. It may be nil.
	Shared *os.Root

	// Roots are more trees. If a root is inside the workspace, its files can also be read and
	// written through the workspace.
	Roots []Root
}

// A Root is a tree with a name of its own.
type Root struct {
	Name  string   // first element of its paths; not "media" or "memory"
	Path  string   // absolute, as the model knows it
	Dir   *os.Root // the open tree
	Write bool     // it is writable
}

// Files holds the trees that the tools can access. It is safe for concurrent use.
type Files struct {
	trees   *trees
	reader  *reader
	browser *browser
	editor  *editor
}

// New returns the Files of the given trees.
func New(o Options) *Files {
	// What the reader has shown, the editor may replace: both use the same seen.
	ts, seen := newTrees(o), &seen{}
	return &Files{
		trees:   ts,
		reader:  &reader{ts, o.Extract, seen},
		browser: &browser{ts},
		editor:  &editor{ts, seen, make(chan struct{}, 1)},
	}
}

// Open opens the regular file that a model calls name. The model reads the error.
func (w *Files) Open(c tool.Call, name string) (*os.File, error) {
	at, err := w.trees.find(c, name)
	if err != nil {
		return nil, err
	}
	f, _, err := w.trees.open(at)
	return f, err
}

// Tools returns the tools.
func (w *Files) Tools() []tool.Tool {
	grep := tool.New("grep", grepDescription, tool.Pure, w.browser.grep)
	grep.Aliases = grepAliases
	// Writing the same content twice does no harm. An edit can't be repeated, because it no longer
	// finds its old text.
	tools := []tool.Tool{
		tool.New("read_file", readDescription, tool.Pure, w.reader.readFile),
		tool.New("list_dir", listDescription, tool.Pure, w.browser.listDir),
		tool.New("glob", globDescription, tool.Pure, w.browser.glob),
		grep,
		tool.New("write_file", writeDescription, tool.Idempotent, w.editor.writeFile),
		tool.New("edit_file", editDescription, tool.Once, w.editor.editFile),
		tool.New("apply_patch", patchDescription, tool.Once, w.editor.applyPatch),
		tool.New("notebook_edit", notebookDescription, tool.Once, w.editor.editNotebook),
	}
	// The indexes are those of the list above.
	tools[1].Aliases = listAliases
	tools[6].Rare = "changes several files, all or none"
	tools[7].Rare = "changes a cell of a Jupyter notebook"
	for i := range tools {
		tools[i].MinRole = bus.User // not for guests
		if tools[i].Effect != tool.Pure {
			tools[i].Lasts = w.editor.hasLastingEffect
		}
	}
	return tools
}

// explain rewrites err, the error of an operation on at, for the model. The text names the file as
// the model has written it.
func (ts *trees) explain(at place, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ts.missing(at)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q: permission denied", at.given)
	case strings.HasSuffix(err.Error(), errEscape.Error()): // package os exports no such error
		return fmt.Errorf("%q is or contains a symbolic link that leads out of %s "+
			"or is absolute; such links are not followed", at.given, at.tree.title())
	case errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("%q: the name is too long for the file system", truncate(at.given))
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err // leave out the absolute path
	}
	if linkErr, ok := errors.AsType[*os.LinkError](err); ok {
		err = linkErr.Err
	}
	return fmt.Errorf("%q: %w", at.given, err)
}

// missing returns the error for a file that does not exist.
func (ts *trees) missing(at place) error {
	if at.tree == ts.memory && filepath.Dir(at.path) == "." { // the other entries are other scopes
		return fmt.Errorf("nothing has been written to %s yet", ts.memory.name)
	}
	hint := ""
	// If the directory is missing, too, there is no suggestion.
	if names, err := namesIn(at.tree.dir, filepath.Dir(at.path), maxSuggested); err == nil {
		if n := suggest.Name(filepath.Base(at.path), names); n != "" && n != filepath.Base(at.path) {
			hint = fmt.Sprintf("; did you mean %q?", n)
		}
	}
	// Shared documents appear at the top of the workspace.
	in := ts.workspace.path
	if at.tree != ts.workspace && at.tree != ts.shared {
		in = at.tree.title()
	}
	return fmt.Errorf("there is no %q in %s%s; list_dir shows what there is", at.given, in, hint)
}

// maxSuggested is the number of directory entries that are searched for a similar name.
const maxSuggested = 2_000

// kind returns the name of a file's kind, such as a directory or a pipe, or "" for a regular file.
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

// printable returns a file's name, quoted if it has special characters.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// truncate returns s, cut to 80 bytes.
func truncate(s string) string { return plaintext.Clip(s, 80) }
