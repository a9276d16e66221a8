package files

import (
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

// promptFiles are the documents at the top of the workspace that everybody's prompt has in it.
var promptFiles = []string{
	"AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md",
}

// skillsFolder holds skills, in the workspace everybody's.
const skillsFolder = "skills"

// isPrompt reports whether a path, relative to the workspace and with slashes, is or leads to what
// everybody's prompt is made of. Some systems don't mind the case of letters, nor dots and spaces
// at the end of a name, and take a colon for the end of it.
func isPrompt(path string) bool {
	elements := strings.Split(path, "/")
	first, _, _ := strings.Cut(elements[0], ":")
	first = strings.TrimRight(first, ". ")
	if strings.EqualFold(first, skillsFolder) {
		return true
	}
	return len(elements) == 1 &&
		slices.ContainsFunc(promptFiles, func(name string) bool { return strings.EqualFold(first, name) })
}

// mayWritePrompt reports whether a call may change what everybody's prompt is made of. Whoever
// may has the agent do for everybody what they say there.
func mayWritePrompt(c tool.Call) bool { return c.Role.AtLeast(bus.Admin) }

// refusePrompt is the error of a call that may not.
func (w *Files) refusePrompt(said string) error {
	text := fmt.Sprintf("%q is part of the prompt of everybody who talks to you, and is changed for "+
		"admins only", said)
	if w.memory != nil {
		text += "; what concerns this conversation belongs in memory/USER.md, memory/MEMORY.md or " +
			"memory/skills/NAME/SKILL.md"
	}
	return errors.New(text)
}

// A descent opens the directory of a file that is about to be written, one after the other from
// the top of its tree, through no link: who makes a link of a directory meanwhile leads it nowhere.
type descent struct {
	w      *Files
	call   tool.Call
	at     place
	create bool

	made []string // directories that were made, the innermost first
}

// open returns the directory of the file.
func (d *descent) open() (*os.Root, error) {
	workspace, err := d.w.workspace.dir.Stat(".")
	if err != nil {
		return nil, err
	}
	dir, err := d.at.tree.dir.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	elements := strings.Split(filepath.ToSlash(d.at.path), "/")
	for i := range elements {
		if err := d.check(dir, workspace, elements[i:]); err != nil {
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

// check refuses a directory of the workspace's own files to those who may not write them, by
// whatever tree it was reached, and the memories to a call that came there by another way.
func (d *descent) check(dir *os.Root, workspace fs.FileInfo, rest []string) error {
	here, err := dir.Stat(".")
	if err != nil {
		return err
	}
	if os.SameFile(here, workspace) && isPrompt(strings.Join(rest, "/")) && !mayWritePrompt(d.call) {
		return d.w.refusePrompt(d.at.said)
	}
	if skills, err := d.w.workspace.dir.Lstat(skillsFolder); err == nil &&
		os.SameFile(here, skills) && !mayWritePrompt(d.call) {
		return d.w.refusePrompt(d.at.said)
	}
	if d.w.memory != nil && d.at.tree != d.w.memory {
		memories, err := d.w.memory.dir.Stat(".")
		if err == nil && os.SameFile(here, memories) {
			return fmt.Errorf("%q: memories are reached by memory/ only", d.at.said)
		}
	}
	return nil
}

// step opens the last of the elements, which is in dir.
func (d *descent) step(dir *os.Root, elements []string) (*os.Root, error) {
	name := elements[len(elements)-1]
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && d.create {
		if err := dir.Mkdir(name, d.at.tree.newDir()); err == nil {
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
		return nil, errMoved // it was none when the path was resolved
	}
	next, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if now, err := next.Stat("."); err != nil || !os.SameFile(info, now) {
		_ = next.Close() // nothing was written
		return nil, errMoved
	}
	return next, nil
}
