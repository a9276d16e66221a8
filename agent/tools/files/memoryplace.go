package files

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"gateway/agent/tool"
	"gateway/memory"
)

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

// belongsTo reports whether a path in the memories belongs to the call's scope.
func belongsTo(rest string, c tool.Call) bool {
	first, _, _ := strings.Cut(rest, "/")
	return c.Scope != "" && first == string(c.Scope)
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
		return nil
	}
	return fmt.Errorf("%q: in memory there are only Markdown files, such as memory/MEMORY.md, and "+
		"skills, such as memory/skills/NAME/SKILL.md; other files belong in the workspace", at.given)
}

// errMoved means that a directory was moved or replaced by a link while a file in it was
// written.
var errMoved = errors.New("a directory of its path is being changed at the same time; try again")
