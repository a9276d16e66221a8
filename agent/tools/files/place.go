package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"gateway/agent/tool"
	"gateway/bus"
	"gateway/memory"
)

// A tree is a directory tree that the tools can access.
type tree struct {
	name    string // first element of its paths; "" for the workspace and shared documents
	path    string // absolute; "" for media
	dir     *os.Root
	write   bool
	private bool // new files are not readable by other users of the system
}

// title returns the tree's name for use in a sentence.
func (t *tree) title() string {
	switch {
	case t.name == "" && t.private:
		return "the shared documents and skills"
	case t.isWorkspace():
		return "the workspace"
	case t.path == "" || t.private:
		return t.name
	}
	return fmt.Sprintf("%s (%s)", t.name, t.path)
}

// isWorkspace reports whether t is the workspace. The tree of the shared documents has no name
// either, but is private.
func (t *tree) isWorkspace() bool { return t.name == "" && !t.private }

// A place is a path in a tree. The file need not exist.
type place struct {
	tree  *tree
	path  string // within tree.dir
	name  string // as tools show and accept it, with slashes
	given string // as the model wrote it
}

// under returns the place of rel below p. rel has slashes.
func (p place) under(rel string) place {
	name := p.name + "/" + rel
	if p.name == "." {
		name = rel
	}
	return place{p.tree, filepath.Join(p.path, filepath.FromSlash(rel)), name, name}
}

// trees holds the directory trees that the tools can access. It decides which file a path means and
// who may write it.
type trees struct {
	workspace *tree
	media     *tree // or nil
	memory    *tree // of all scopes, or nil
	shared    *tree // or nil
	roots     []*tree
}

func newTrees(o Options) *trees {
	ts := &trees{workspace: &tree{path: filepath.Clean(o.Path), dir: o.Workspace, write: true}}
	if o.Media != nil {
		ts.media = &tree{name: "media", dir: o.Media}
	}
	if o.Memory != nil {
		ts.memory = privateTree("memory", o.Memory)
	}
	if o.Shared != nil {
		ts.shared = privateTree("", o.Shared)
	}
	for _, r := range o.Roots {
		ts.roots = append(ts.roots,
			&tree{name: r.Name, path: filepath.Clean(r.Path), dir: r.Dir, write: r.Write})
	}
	return ts
}

// privateTree returns the tree of a folder of documents.
func privateTree(name string, dir *os.Root) *tree {
	t := &tree{name: name, dir: dir, write: true, private: true}
	// The path of a tree that was opened by a relative path is not known. Such a tree has no
	// absolute paths.
	if path := dir.Name(); filepath.IsAbs(path) {
		t.path = filepath.Clean(path)
	}
	return t
}

// maxPath is the greatest length of a path that the model gives, in bytes. Linux has the same
// limit.
const maxPath = 4096

// find returns the place for a path that the model wrote: a relative path, or an absolute path in a
// tree. It does not check whether the file exists. It refuses paths in a withheld skill.
func (ts *trees) find(c tool.Call, name string) (place, error) {
	at, err := ts.locate(c, name)
	if err == nil && withheld(c, at) {
		err = fmt.Errorf("%q belongs to a skill that is withheld in this conversation", truncate(name))
	}
	return at, err
}

// withheld reports whether a place is in a skill that is withheld from a call. Names that differ
// only in case may be the same file.
func withheld(c tool.Call, at place) bool {
	if len(c.Limits.Folders) == 0 || at.tree.isWorkspace() {
		return false
	}
	// A link must not be a way into the skill.
	if real, err := at.resolved(); err == nil {
		at = real
	}
	name := filepath.ToSlash(at.path)
	if at.tree.name == "memory" {
		_, name, _ = strings.Cut(name, "/") // without the scope
	}
	if at.tree.name != "" {
		name = at.tree.name + "/" + name
	}
	return slices.ContainsFunc(c.Limits.Folders, func(folder string) bool {
		return len(name) >= len(folder) && strings.EqualFold(name[:len(folder)], folder) &&
			(len(name) == len(folder) || name[len(folder)] == '/')
	})
}

// locate is find for all paths. It is the only place that decides to which tree a path belongs.
func (ts *trees) locate(c tool.Call, name string) (place, error) {
	if err := checkName(name); err != nil {
		return place{}, err
	}
	t, rel := ts.workspace, filepath.Clean(name) // "." for ""
	// This comes before treeOf: the folder of the memories may be inside another tree, through
	// which a call could otherwise reach other scopes.
	if rest, ok := ts.ownPath(rel); ok {
		if scope, _, _ := strings.Cut(rest, "/"); c.Scope == "" || scope != string(c.Scope) {
			return place{}, ts.outside(name)
		}
		return ts.memoryPlace(c, rest, name)
	}
	if filepath.IsAbs(rel) {
		if p, ok := ts.sharedPath(rel); ok {
			rel = p
		} else if t, rel = ts.treeOf(rel); t == nil {
			return place{}, ts.outside(name)
		}
	}
	if !filepath.IsLocal(rel) {
		return place{}, ts.outside(name)
	}
	p := place{t, rel, filepath.ToSlash(rel), cmp.Or(name, ".")}
	// The names of shared documents hide files of the workspace.
	if t == ts.workspace && ts.shared != nil && isShared(p.name) {
		p.tree = ts.shared
		return p.normalized(), nil
	}
	if t != ts.workspace {
		p.name = strings.TrimSuffix(t.name+"/"+p.name, "/.")
		return p.normalized(), nil
	}
	// In the workspace, the first element may be the name of another tree.
	first, rest, _ := strings.Cut(p.name, "/")
	if ts.media != nil && first == ts.media.name {
		// A conversation sees only the files that were sent to it.
		p.tree, p.path = ts.media, ts.media.receivedFile(c, rest)
	}
	if ts.memory != nil && first == ts.memory.name {
		return ts.memoryPlace(c, rest, p.given)
	}
	for _, t := range ts.roots {
		if t.name == first {
			p.tree, p.path = t, filepath.Join(".", filepath.FromSlash(rest))
		}
	}
	return p.normalized(), nil
}

// receivedFile returns the path in t, the media, of a file that was sent to the conversation of a
// call: in its chat, or else in the first other chat that has such a file.
func (t *tree) receivedFile(c tool.Call, name string) string {
	in := func(a bus.Address) string {
		return filepath.Join(filepath.FromSlash(a.Folder()), filepath.FromSlash(name))
	}
	path := in(c.Address)
	if name == "" {
		return path
	}
	// The file is there, or the caller finds out why it can't be read.
	if _, err := t.dir.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return path
	}
	for _, a := range c.Chats {
		if _, err := t.dir.Lstat(in(a)); err == nil {
			return in(a)
		}
	}
	return path
}

// sharedPath returns the path that tools use for an absolute path in the shared folder.
func (ts *trees) sharedPath(path string) (string, bool) {
	if ts.shared == nil || ts.shared.path == "" {
		return "", false
	}
	rel, err := filepath.Rel(ts.shared.path, path)
	return rel, err == nil && isShared(filepath.ToSlash(rel))
}

// checkName returns an error if name can't be a path.
func checkName(name string) error {
	scheme, rest, isURL := strings.Cut(name, "://")
	switch {
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%q is invalid: a path can't hold a NUL character", truncate(name))
	case len(name) > maxPath:
		return fmt.Errorf("%q: the path is too long, %d bytes", truncate(name), len(name))
	case name == "~" || strings.HasPrefix(name, "~/"):
		return fmt.Errorf("%q: there is no home directory here; want a path within the workspace", name)
	case isURL && strings.EqualFold(scheme, "file"):
		return fmt.Errorf("%q is a URL; want a path, such as %q", truncate(name), truncate(rest))
	case isURL && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		return fmt.Errorf("%q is a URL and not a file; want a path", truncate(name))
	}
	return nil
}

// treeOf returns the innermost tree that contains an absolute path, and the path relative to it.
// Media, memories and shared documents have paths of their own and are not among these trees.
func (ts *trees) treeOf(path string) (*tree, string) {
	var best *tree
	within := ""
	for _, t := range slices.Concat([]*tree{ts.workspace}, ts.roots) {
		// All trees that contain path are nested, so the longest name is the innermost.
		rel, err := filepath.Rel(t.path, path)
		if err == nil && filepath.IsLocal(rel) && (best == nil || len(t.path) > len(best.path)) {
			best, within = t, rel
		}
	}
	return best, within
}

func (ts *trees) outside(name string) error {
	text := fmt.Sprintf("%q is outside the workspace; only files in %s", truncate(name),
		ts.workspace.path)
	for _, t := range ts.roots {
		text += ", " + t.title()
	}
	return errors.New(text + " can be reached")
}

// maxSpelled is the number of directory entries that are compared with a name.
const maxSpelled = 20_000

// normalized returns p with each element spelled as in the directory, if the spellings differ only
// in their Unicode normalization. macOS, for example, stores accents as separate characters.
func (p place) normalized() place {
	if isASCII(p.path) {
		return p
	}
	if _, err := p.tree.dir.Lstat(p.path); !errors.Is(err, fs.ErrNotExist) {
		return p
	}
	done := "."
	elements := strings.Split(filepath.ToSlash(p.path), "/")
	for i, e := range elements {
		if _, err := p.tree.dir.Lstat(filepath.Join(done, e)); errors.Is(err, fs.ErrNotExist) {
			names, err := namesIn(p.tree.dir, done, maxSpelled)
			if err != nil {
				return p
			}
			other := func(name string) bool { return norm.NFC.String(name) != norm.NFC.String(e) }
			if names = slices.DeleteFunc(names, other); len(names) != 1 {
				break // the remaining elements do not exist either
			}
			elements[i] = names[0]
		}
		done = filepath.Join(done, elements[i])
	}
	below := strings.TrimSuffix(p.name, filepath.ToSlash(p.path)) // "" or the tree's name
	p.path = filepath.Join(filepath.FromSlash(strings.Join(elements, "/")))
	if below != p.name {
		p.name = below + filepath.ToSlash(p.path)
	}
	return p
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// namesIn returns at most n names of entries of a directory.
func namesIn(root *os.Root, path string, n int) ([]string, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// maxLinks is the number of symbolic links that a path may go through. Linux has the same limit.
const maxLinks = 40

// errEscape is the error for a link that leads out of its tree. It has the text that package os
// uses.
var errEscape = errors.New("path escapes from parent")

// resolved returns p without symbolic links, so that a write replaces the link's target and not the
// link. This does not protect anything: if somebody changes links at the same time, the write goes
// to another place within the tree. The tree itself prevents an escape.
func (p place) resolved() (place, error) {
	// done has the elements that are known to be no links, pending those still to be examined.
	pending := strings.Split(filepath.ToSlash(p.path), "/")
	var done []string
	links := 0
	for len(pending) > 0 {
		e := pending[0]
		pending = pending[1:]
		switch e {
		case ".", "":
			continue
		case "..":
			if len(done) == 0 {
				return p, errEscape
			}
			done = done[:len(done)-1]
			continue
		}
		path := filepath.Join(append(slices.Clone(done), e)...)
		info, err := p.tree.dir.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !slices.Contains(pending, ".."):
			// Nothing exists below a missing element, so the rest has no links. With a ".." in the
			// rest, the path can't be resolved.
			p.path = filepath.Join(append([]string{path}, pending...)...)
			return p, nil
		case err != nil:
			return p, err
		case info.Mode()&fs.ModeSymlink == 0:
			done = append(done, e)
			continue
		}
		target, err := p.tree.dir.Readlink(path)
		if err != nil {
			return p, err
		}
		if links++; links > maxLinks {
			return p, syscall.ELOOP
		}
		if filepath.IsAbs(target) || filepath.VolumeName(target) != "" {
			return p, errEscape
		}
		pending = append(strings.Split(filepath.ToSlash(target), "/"), pending...)
	}
	p.path = filepath.Join(append([]string{"."}, done...)...)
	return p, nil
}

// historyFile is the journal of a scope. Only the gateway writes it.
const historyFile = "history.jsonl"

// memoryPlace returns a place in the memory of the call's scope. A call sees no other memory. Links
// are refused there, because the folders of other scopes are in the same tree.
func (ts *trees) memoryPlace(c tool.Call, rest, written string) (place, error) {
	if c.Scope == "" {
		return place{}, fmt.Errorf("%q: this conversation has no memory", written)
	}
	if _, err := memory.ParseScope(string(c.Scope)); err != nil {
		return place{}, fmt.Errorf("%q: %w", written, err)
	}
	rest = filepath.ToSlash(filepath.Join(".", filepath.FromSlash(rest)))
	// People see the folders of all scopes, so they may write the name with the scope.
	if first, below, _ := strings.Cut(rest, "/"); first == string(c.Scope) {
		rest = filepath.ToSlash(filepath.Join(".", filepath.FromSlash(below)))
	}
	p := place{
		tree: ts.memory, path: filepath.Join(string(c.Scope), filepath.FromSlash(rest)),
		name: strings.TrimSuffix(ts.memory.name+"/"+rest, "/."), given: written,
	}
	p = p.normalized()
	for at := p.path; at != "."; at = filepath.Dir(at) {
		if info, err := ts.memory.dir.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return place{}, fmt.Errorf("%q is or contains a symbolic link; in memory such links "+
				"are not followed", written)
		}
	}
	return p, nil
}

// ownPath reports whether an absolute path is in the memories, and returns its path there.
func (ts *trees) ownPath(path string) (rest string, ok bool) {
	if ts.memory == nil || ts.memory.path == "" {
		return "", false
	}
	rel, err := filepath.Rel(ts.memory.path, path)
	return filepath.ToSlash(rel), err == nil && filepath.IsLocal(rel)
}

// checkOwn refuses to write a file that does not belong into a memory.
func (at place) checkOwn() error {
	elements := strings.Split(filepath.ToSlash(at.path), "/")[1:] // without the scope
	hidden := func(e string) bool { return strings.HasPrefix(e, ".") }
	switch {
	case len(elements) == 1 && strings.EqualFold(elements[0], historyFile):
		return fmt.Errorf("%q is the record of the conversation, which only the gateway writes; "+
			"remember what matters, or write it into memory/MEMORY.md", at.given)
	case slices.ContainsFunc(elements, hidden):
	case len(elements) == 1 && filepath.Ext(elements[0]) == ".md":
		return nil
	case len(elements) >= 3 && elements[0] == skillsFolder:
		// A file directly in the folder belongs to no skill.
		return nil
	}
	return fmt.Errorf("%q: in memory there are only Markdown files, such as memory/MEMORY.md, and "+
		"skills, such as memory/skills/NAME/SKILL.md; other files belong in the workspace", at.given)
}

// errMoved means that a directory was moved or replaced by a link while a file in it was
// written.
var errMoved = errors.New("a directory of its path is being changed at the same time; try again")
