package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gateway/agent/tool"
	"gateway/agent/tools/files/osfile"
)

// Limits of one call of list_dir, in entries.
const (
	maxShown = 500
	maxRead  = 20_000
)

const listDescription = "Lists a directory."

// listArgs are the arguments of list_dir. Limit and Skip count entries; a Limit of 0 means
// maxShown.
type listArgs struct {
	Path  string `json:"path,omitempty"`
	Deep  bool   `json:"recursive,omitempty"`
	Limit int    `json:"head_limit,omitempty"`
	Skip  int    `json:"offset,omitempty"`
}

// listAliases are nanobot's names of arguments.
var listAliases = map[string]string{"max_entries": "head_limit"}

// A browser implements the tools that list and search directories: list_dir, glob and grep.
type browser struct{ trees *trees }

// listDir implements list_dir. With recursive it is a glob for everything, with the limits of glob.
func (b *browser) listDir(ctx context.Context, c tool.Call, a listArgs) (tool.Result, error) {
	if a.Limit < 0 || a.Skip < 0 {
		return tool.Result{}, errors.New("offset and head_limit can't be negative")
	}
	if a.Deep {
		return b.glob(ctx, c, globArgs{Pattern: "**", Path: a.Path, Type: "any", Limit: a.Limit,
			Skip: a.Skip})
	}
	at, err := b.trees.find(c, a.Path)
	if err != nil {
		return tool.Result{}, err
	}
	entries, err := b.readDir(at)
	if err != nil {
		return tool.Result{}, err
	}
	entries = shown(c, at, entries)
	// The top of the workspace also shows what belongs to other trees.
	if at.tree == b.trees.workspace && at.path == "." {
		entries = b.trees.withShared(b.trees.withMemory(c, entries))
	}
	if len(entries) == 0 {
		return tool.Result{Text: "(the directory is empty)"}, nil
	}
	if a.Skip >= len(entries) {
		return tool.Result{}, fmt.Errorf("%q has only %d entries, so none at offset %d",
			at.given, len(entries), a.Skip)
	}
	var text strings.Builder
	end := min(len(entries), a.Skip+min(cmp.Or(a.Limit, maxShown), maxShown))
	for _, e := range entries[a.Skip:end] {
		if err := ctx.Err(); err != nil {
			return tool.Result{}, err
		}
		text.WriteString(line(at, e) + "\n")
	}
	if a.Skip > 0 || end < len(entries) || len(entries) == maxRead {
		text.WriteString(listNote(a.Skip, end, len(entries)))
	}
	return tool.Result{
		Text: strings.TrimSuffix(text.String(), "\n"), Foreign: foreign("directory", at),
		Trusted: b.trees.isTrusted(at),
	}, nil
}

// listNote names the range of entries that are shown, and the offset for the others.
func listNote(skip, end, all int) string {
	more := ""
	if all == maxRead {
		more = "more than "
	}
	note := fmt.Sprintf("\n(the first %d of %s%d entries", end, more, all)
	if skip > 0 {
		note = fmt.Sprintf("\n(entries %d to %d of %s%d", skip+1, end, more, all)
	}
	if end < all {
		note += fmt.Sprintf("; more with offset %d", end)
	}
	return note + ")\n"
}

// withMemory returns the entries of the workspace with the memory of the call's scope, if any. It
// replaces the link "memory", which is only for people.
func (ts *trees) withMemory(c tool.Call, entries []fs.DirEntry) []fs.DirEntry {
	if ts.memory == nil {
		return entries
	}
	info, err := ts.memory.dir.Lstat(string(c.Scope))
	if c.Scope == "" || err != nil || !info.IsDir() {
		info = nil
	}
	return replaceEntry(entries, ts.memory.name, info)
}

// withShared returns the entries of the workspace with the shared documents and skills.
func (ts *trees) withShared(entries []fs.DirEntry) []fs.DirEntry {
	if ts.shared == nil {
		return entries
	}
	for _, name := range append([]string{skillsFolder}, sharedFiles...) {
		info, err := ts.shared.dir.Lstat(name)
		if err != nil {
			info = nil
		}
		entries = replaceEntry(entries, name, info)
	}
	return entries
}

// replaceEntry returns entries with name replaced by an entry of another tree, or removed if info
// is nil. entries are sorted by name, and stay so.
func replaceEntry(entries []fs.DirEntry, name string, info fs.FileInfo) []fs.DirEntry {
	byName := func(e fs.DirEntry, name string) int { return cmp.Compare(e.Name(), name) }
	i, found := slices.BinarySearchFunc(entries, name, byName)
	if found {
		entries = slices.Delete(entries, i, i+1)
	}
	if info == nil {
		return entries
	}
	return slices.Insert(entries, i, fs.DirEntry(otherEntry{fs.FileInfoToDirEntry(info), name}))
}

// otherEntry is an entry of another tree, under the name that calls use.
type otherEntry struct {
	fs.DirEntry
	name string
}

// Name implements fs.DirEntry.
func (e otherEntry) Name() string { return e.name }

// readDir returns the entries of a directory, sorted by name. It reads maxRead of them at most.
func (b *browser) readDir(at place) ([]fs.DirEntry, error) {
	if err := b.trees.wantDir(at); err != nil {
		return nil, err
	}
	f, err := at.tree.dir.OpenFile(at.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, b.trees.explain(at, err)
	}
	defer f.Close()
	if osfile.IsPseudo(f) {
		return nil, fmt.Errorf("%q is a part of the system and can't be listed", at.given)
	}
	entries, err := f.ReadDir(maxRead)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, b.trees.explain(at, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// line describes an entry of the directory at a place.
func line(at place, e fs.DirEntry) string {
	name := printable(e.Name())
	root := at.tree.dir
	switch k := kind(e.Type()); k {
	case "directory":
		return name + "/"
	case "symbolic link":
		target, err := root.Readlink(filepath.Join(at.path, e.Name()))
		if err != nil {
			return name + " (symbolic link)"
		}
		return name + " -> " + printable(target)
	case "":
		// The size of an entry of another tree is that of the entry, because at leads elsewhere.
		info, err := root.Lstat(filepath.Join(at.path, e.Name()))
		if other, ok := e.(otherEntry); ok {
			info, err = other.Info()
		}
		if err != nil {
			return name // removed in the meantime
		}
		return fmt.Sprintf("%s  %d", name, info.Size())
	default:
		return name + " (" + k + ")"
	}
}
