package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"gateway/agent/tool"
)

const patchDescription = `Changes, adds, deletes and moves several files, all or none: "*** ` +
	`Begin Patch", "*** Update File: PATH" (also Add, Delete; "*** Move to: PATH"), "@@" and ` +
	`lines with " ", "-" or "+" in front, "*** End Patch". Each hunk needs about 3 lines of ` +
	`context.`

// Limits of a patch.
const (
	maxPatch      = 4 << 20 // bytes
	maxPatchFiles = 200
)

type patchArgs struct {
	Patch string `json:"patch"`
}

func (e *editor) applyPatch(ctx context.Context, c tool.Call, a patchArgs) (tool.Result, error) {
	if len(a.Patch) > maxPatch {
		return tool.Result{}, fmt.Errorf("the patch has more than %d bytes; use several", maxPatch)
	}
	patches, err := parsePatch(a.Patch)
	if err != nil {
		return tool.Result{}, err
	}
	if len(patches) > maxPatchFiles {
		return tool.Result{}, fmt.Errorf("the patch changes more than %d files; use several",
			maxPatchFiles)
	}
	unlock, err := e.lock(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	defer unlock()
	p := patching{editor: e, call: c, files: make(map[patchKey]*patched)}
	for _, f := range patches {
		if err := ctx.Err(); err != nil {
			return tool.Result{}, err
		}
		if err := p.apply(f); err != nil {
			return tool.Result{}, fmt.Errorf("nothing was changed: %w", err)
		}
	}
	changes := p.changes()
	if len(changes) == 0 {
		return tool.Result{}, errors.New("nothing was changed: the files are the same after the patch")
	}
	if err := e.save(ctx, c, changes...); err != nil {
		return tool.Result{}, fmt.Errorf("nothing was changed: %w", err)
	}
	return tool.Result{Text: strings.Join(p.report, "\n")}, nil
}

// A patching is the state of a patch while it is applied. All of it is in memory.
type patching struct {
	editor *editor
	call   tool.Call
	files  map[patchKey]*patched
	order  []*patched
	report []string // messages for the model about the changes
}

type patchKey struct {
	tree *tree
	path string
}

// A patched is a file with the changes that the patch has made so far.
type patched struct {
	target
	old, text string
	exists    bool
	loaded    bool
	like      fs.FileInfo // the file before a move, or nil
}

// file returns the file that the patch calls name.
func (p *patching) file(name string) (*patched, error) {
	t, err := p.editor.target(p.call, name)
	if err != nil {
		return nil, err
	}
	key := patchKey{t.tree, t.path}
	if f, ok := p.files[key]; ok {
		return f, nil
	}
	if err := p.editor.wantUnchanged(p.call, t); err != nil {
		return nil, err
	}
	f := &patched{target: t, exists: t.info != nil}
	p.files[key] = f
	p.order = append(p.order, f)
	return f, nil
}

// load reads the file unless that has been done.
func (p *patching) load(f *patched) (err error) {
	if f.loaded || f.info == nil {
		return nil
	}
	f.old, f.target, err = p.editor.wholeText(f.target)
	f.text, f.loaded = f.old, err == nil
	return err
}

// apply applies the part of a patch that concerns one file.
func (p *patching) apply(patch filePatch) error {
	f, err := p.file(patch.path)
	switch {
	case err != nil:
		return err
	case patch.add && f.exists:
		return fmt.Errorf("%q is there already; to change it use an update", patch.path)
	case patch.add:
		f.text, f.exists, f.loaded = "", true, true
		p.reportChange("made", f)
		return p.hunks(patch, f)
	case !f.exists:
		return p.editor.trees.missing(f.place)
	case patch.remove:
		f.exists = false
		p.reportChange("removed", f)
		return nil
	}
	if err := p.load(f); err != nil {
		return err
	}
	if err := p.hunks(patch, f); err != nil {
		return err
	}
	if patch.moveTo != "" {
		return p.move(f, patch.moveTo)
	}
	p.reportChange("changed", f)
	return nil
}

func (p *patching) hunks(patch filePatch, f *patched) error {
	text, err := applyHunks(f.text, patch.hunks)
	if err != nil {
		return fmt.Errorf("%s: %w", printable(f.name), err)
	}
	if len(text) > maxEdit {
		return fmt.Errorf("%s would have more than %d bytes", printable(f.name), maxEdit)
	}
	f.text = text
	return nil
}

// move moves a file's content to the given name.
func (p *patching) move(f *patched, name string) error {
	to, err := p.file(name)
	switch {
	case err != nil:
		return err
	case to == f:
		p.reportChange("changed", f)
		return nil
	case to.exists:
		return fmt.Errorf("%q can't be moved to %q, which is there already", f.given, name)
	}
	to.text, to.exists, to.loaded, to.like = f.text, true, true, cmp.Or(f.info, f.like)
	f.exists = false
	p.report = append(p.report,
		fmt.Sprintf("%s was moved to %s", printable(f.name), printable(to.name)))
	return nil
}

func (p *patching) reportChange(what string, f *patched) {
	p.report = append(p.report, fmt.Sprintf("%s was %s", printable(f.name), what))
}

// changes returns the changes to make on disk.
func (p *patching) changes() []change {
	var list []change
	for _, f := range p.order {
		switch {
		case !f.exists && f.info != nil:
			list = append(list, change{target: f.target, remove: true})
		case f.exists && (f.info == nil || f.loaded && f.text != f.old):
			list = append(list, change{target: f.target, content: []byte(f.text), like: f.like})
		}
	}
	return list
}
