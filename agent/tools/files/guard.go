package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gateway/agent/tool"
	"gateway/bus"
)

// sharedFiles are the shared documents of each prompt, and heartbeatFile, which earlier
// versions shared.
var sharedFiles = []string{
	"AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md", heartbeatFile,
}

// heartbeatFile is read by heartbeats only in a memory.
const heartbeatFile = "HEARTBEAT.md"

// skillsFolder is the folder of skills. In the shared folder it holds the shared ones.
const skillsFolder = "skills"

// isShared reports whether a slash-separated path, relative to the workspace, is in the
// shared folder.
func isShared(path string) bool {
	first, _, below := strings.Cut(path, "/")
	return first == skillsFolder || !below && slices.Contains(sharedFiles, first)
}

// checkShared refuses a write to the shared folder unless the caller's role allows it:
// shared documents affect the agent's behaviour for everybody.
func (ts *trees) checkShared(c tool.Call, at place) error {
	switch {
	case at.path == heartbeatFile && ts.memory != nil:
		return fmt.Errorf("%q is not read by the heartbeat; use memory/%s", at.given, heartbeatFile)
	case !c.Role.AtLeast(bus.Admin):
		return ts.refusePrompt(at.given)
	case !isShared(filepath.ToSlash(at.path)) || at.path == skillsFolder: // reached through a link
		return fmt.Errorf("%q leads to no shared document and no skill", at.given)
	}
	return nil
}

// refusePrompt returns the error for a write that the role does not allow.
func (ts *trees) refusePrompt(written string) error {
	text := fmt.Sprintf("%q is part of the prompt for everybody who talks to you, and may be "+
		"changed for admins only", written)
	if ts.memory != nil {
		text += "; notes about this conversation belong in memory/USER.md, memory/MEMORY.md or " +
			"memory/skills/NAME/SKILL.md"
	}
	return errors.New(text)
}

// descent opens the directory of a file to be written, element by element from the top of
// its tree, and follows no link. A directory that is replaced by a link in the meantime is
// therefore refused.
type descent struct {
	trees  *trees
	at     place
	create bool

	made []string // created directories, the innermost first
}

// open returns the directory of the file. The caller must close it. After an error, too, d.made
// lists the directories that it has created.
func (d *descent) open() (*os.Root, error) {
	dir, err := d.at.tree.dir.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	elements := strings.Split(filepath.ToSlash(d.at.path), "/")
	for i := range elements {
		if err := d.check(dir); err != nil {
			_ = dir.Close() // nothing was written
			return nil, err
		}
		if i == len(elements)-1 {
			break
		}
		next, err := d.step(dir, elements[:i+1])
		_ = dir.Close() // nothing was written
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// check refuses a directory that belongs to another tree: shared files and memories may be
// written only by their own names.
func (d *descent) check(dir *os.Root) error {
	here, err := dir.Stat(".")
	if err != nil {
		return err
	}
	// The comparison is of the directories and not of their names, because a link or a second root
	// may lead to them.
	is := func(root *os.Root, name string) bool {
		info, err := root.Lstat(name)
		return err == nil && os.SameFile(here, info)
	}
	if t := d.trees.shared; t != nil && d.at.tree != t && (is(t.dir, ".") || is(t.dir, skillsFolder)) {
		return d.trees.refusePrompt(d.at.given)
	}
	if t := d.trees.memory; t != nil && d.at.tree != t && is(t.dir, ".") {
		return fmt.Errorf("%q: memories are reached by memory/ only", d.at.given)
	}
	return nil
}

// step opens the last of the elements, a directory in dir.
func (d *descent) step(dir *os.Root, elements []string) (*os.Root, error) {
	name := elements[len(elements)-1]
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && d.create {
		// Another process may create the directory at the same time.
		if err := dir.Mkdir(name, d.at.tree.mode(newDir)); err == nil {
			d.made = slices.Insert(d.made, 0, filepath.Join(elements...))
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		info, err = dir.Lstat(name)
	}
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil, errMoved // it was not a link when the path was resolved
	}
	next, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	// The directory may have been replaced since Lstat.
	if now, err := next.Stat("."); err != nil || !os.SameFile(info, now) {
		_ = next.Close() // nothing was written
		return nil, errMoved
	}
	return next, nil
}

// isTrusted reports whether only people change the files of a place, or the agent with their
// approval: the memory of a scope, and the shared documents.
func (ts *trees) isTrusted(at place) bool {
	if real, err := at.resolved(); err == nil {
		at = real
	}
	return ts.memory != nil && at.tree == ts.memory || ts.shared != nil && at.tree == ts.shared
}

// changes are the arguments that name files, for all tools that change files.
type changes struct {
	editArgs
	Patch   string  `json:"patch"`
	Content *string `json:"content"`
	Source  *string `json:"source"`
}

// hasLastingEffect reports whether a call changes documents or skills, which affect later turns.
// Ticking an item of a list does not count.
func (e *editor) hasLastingEffect(c tool.Call) bool {
	var a changes
	if json.Unmarshal(c.Args, &a) != nil {
		return false // the call itself reports the error
	}
	edits, err := a.list()
	if err == nil && a.Patch == "" && a.Content == nil && a.Source == nil && marksDone(edits) {
		return false
	}
	// A patch names its files itself.
	names := []string{a.Path}
	if a.Patch != "" {
		patches, err := parsePatch(a.Patch)
		if err != nil {
			return false // the call itself reports the error
		}
		for _, p := range patches {
			names = append(names, p.path, p.moveTo)
		}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if at, err := e.trees.find(c, name); err == nil && e.trees.isTrusted(at) {
			return true
		}
	}
	return false
}

// marksDone reports whether edits only tick items of lists. An edit that changes nothing does not
// count as one.
func marksDone(edits []edit) bool {
	return !slices.ContainsFunc(edits, func(e edit) bool {
		return e.OldText == e.NewText || strings.ReplaceAll(e.OldText, "- [ ]", "- [x]") != e.NewText
	})
}
