package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gateway/agent/tool"
	"gateway/store/plaintext"
)

const patchDescription = `Changes, adds, deletes and moves several files, all or none: "*** ` +
	`Begin Patch", "*** Update File: PATH" (also Add, Delete; "*** Move to: PATH"), "@@" and ` +
	`lines with " ", "-" or "+" in front, "*** End Patch". Each hunk needs about 3 lines of ` +
	`context.`

// Limits of a patch.
const (
	maxPatch      = 4 << 20 // bytes
	maxPatchFiles = 200
	maxPatched    = 2 * maxEdit // bytes of the files that are changed, all together
)

type patchArgs struct {
	Patch string `json:"patch"`
}

// applyPatch implements apply_patch. All hunks must apply in memory before the first file is
// written.
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
	p := patching{editor: e, call: c, files: make(map[patchKey]*patched), work: maxCompared}
	for _, f := range patches {
		if err := ctx.Err(); err != nil {
			return tool.Result{}, err
		}
		if err := p.apply(f); err != nil {
			return e.trees.refused(fmt.Errorf("nothing was changed: %w", err))
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
	size   int      // bytes of the files that were read
	work   int      // what may still be compared: see maxCompared
}

// A patchKey identifies a file, without symbolic links. Two names in a patch may mean the same
// file, which then has one state.
type patchKey struct {
	tree *tree
	path string
}

// A patched is a file with the changes that the patch has made so far.
type patched struct {
	target
	old, text string      // on the disk, and after the changes so far
	exists    bool        // after the changes so far
	loaded    bool        // text is set, and old unless the file is made anew
	anew      bool        // the patch makes it, perhaps after it has removed it
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
	if p.size += len(f.old); p.size > maxPatched && err == nil {
		err = fmt.Errorf("the files of the patch have more than %d bytes together; use several patches",
			maxPatched)
	}
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
		f.text, f.exists, f.loaded, f.anew = "", true, true, true
		p.reportChange("made", f)
		return p.hunks(patch, f)
	case !f.exists:
		return p.editor.trees.missing(f.place)
	case patch.remove:
		// A file that is only removed need not be text, so it is not loaded.
		f.exists = false
		p.reportChange("removed", f)
		return nil
	}
	// Only a file whose lines change must be text of a limited size.
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
	text, err := applyHunks(f.text, patch.hunks, &p.work)
	if err != nil {
		return contentError{fmt.Errorf("%s: %w", printable(f.name), err), f.place}
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
	// The new file gets the owner and the mode of the old one, also after several moves.
	to.text, to.exists, to.loaded, to.anew = f.text, true, true, true
	to.like = cmp.Or(f.info, f.like)
	f.exists = false
	p.report = append(p.report,
		fmt.Sprintf("%s was moved to %s", printable(f.name), printable(to.name)))
	return nil
}

func (p *patching) reportChange(what string, f *patched) {
	p.report = append(p.report, fmt.Sprintf("%s was %s", printable(f.name), what))
}

// changes returns the changes to make on disk. It leaves out files that are the same as before, and
// those that the patch has both made and removed.
func (p *patching) changes() []change {
	var list []change
	for _, f := range p.order {
		switch {
		case !f.exists && f.info != nil:
			list = append(list, change{target: f.target, remove: true})
		case f.exists && (f.anew || f.loaded && f.text != f.old):
			list = append(list, change{target: f.target, content: []byte(f.text), like: f.like})
		}
	}
	return list
}

// A filePatch is the part of a patch that concerns one file.
type filePatch struct {
	path   string // the file's present name; for a new file, its future name
	moveTo string // or ""
	add    bool
	remove bool
	hunks  []hunk // a new file has at most one, with added lines only
}

// A hunk replaces lines of a file.
type hunk struct {
	anchors []string // lines that occur before the hunk, in this order
	end     bool     // the hunk ends at the end of the file
	lines   []patchLine
}

// A patchLine is one line of a hunk.
type patchLine struct {
	op   byte // ' ', '-' or '+'
	text string
}

// old returns the context and removed lines: those that the file must have.
func (h *hunk) old() (lines []string) {
	for _, l := range h.lines {
		if l.op != '+' {
			lines = append(lines, l.text)
		}
	}
	return lines
}

// parsePatch parses a patch in the "*** Begin Patch" format, on which models are trained.
func parsePatch(text string) ([]filePatch, error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r") // the file decides which line breaks are used
	}
	p := &patchParser{lines: lines}
	if !slices.ContainsFunc(lines, func(l string) bool { return sectionOf(l) != "" }) {
		return nil, errors.New(`there are no changes in the patch: write "*** Begin Patch", then ` +
			`"*** Update File: PATH", "*** Add File: PATH" or "*** Delete File: PATH" for each file; ` +
			`a unified diff is not understood`)
	}
	if err := p.sections(); err != nil {
		return nil, fmt.Errorf("the patch can't be read: line %d: %w", min(p.at, len(lines)-1)+1, err)
	}
	return p.files, nil
}

// A patchParser parses a patch line by line.
type patchParser struct {
	lines []string
	at    int
	files []filePatch
}

// peek returns the current line, or "" after the end.
func (p *patchParser) peek() string {
	if !p.done() {
		return p.lines[p.at]
	}
	return ""
}

func (p *patchParser) done() bool { return p.at >= len(p.lines) }

// The beginnings of lines that structure a patch.
const (
	updateFile = "*** Update File:"
	addFile    = "*** Add File:"
	deleteFile = "*** Delete File:"
	moveTo     = "*** Move to:"
	endOfFile  = "*** End of File"
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
)

// sectionOf returns the marker, of those above, with which the line begins, or "".
func sectionOf(line string) string {
	for _, s := range []string{updateFile, addFile, deleteFile} {
		if strings.HasPrefix(line, s) {
			return s
		}
	}
	return ""
}

// sections parses the parts of the patch, one for each file.
func (p *patchParser) sections() error {
	for !p.done() {
		line := p.peek()
		s := sectionOf(line)
		switch {
		case s != "":
			f := filePatch{path: strings.TrimSpace(line[len(s):])}
			if f.path == "" {
				return errors.New("the path is missing")
			}
			p.at++
			if err := p.section(s, &f); err != nil {
				return err
			}
			p.files = append(p.files, f)
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, beginPatch),
			strings.HasPrefix(line, "```"):
			p.at++
		case strings.HasPrefix(line, endPatch):
			return nil
		default:
			return fmt.Errorf("want a line such as %q, not %s", updateFile+" PATH", quoted(line))
		}
	}
	return nil
}

// section parses the lines after the line that begins a file.
func (p *patchParser) section(s string, f *filePatch) error {
	switch s {
	case deleteFile:
		f.remove = true
		return nil
	case addFile:
		f.add = true
		var h hunk
		for ; !p.done() && strings.HasPrefix(p.peek(), "+"); p.at++ {
			h.lines = append(h.lines, patchLine{op: '+', text: p.peek()[1:]})
		}
		f.hunks = []hunk{h}
		return nil
	}
	if rest, ok := strings.CutPrefix(p.peek(), moveTo); ok {
		f.moveTo = strings.TrimSpace(rest)
		p.at++
	}
	for !p.done() && sectionOf(p.peek()) == "" && !strings.HasPrefix(p.peek(), endPatch) {
		h, err := p.hunk()
		if err != nil {
			return err
		}
		if len(h.lines) > 0 {
			f.hunks = append(f.hunks, h)
		}
	}
	if len(f.hunks) == 0 && f.moveTo == "" {
		return fmt.Errorf("there are no changes for %s", printable(f.path))
	}
	return nil
}

// hunk parses one hunk. Several @@ lines are anchors that follow one another in the file.
func (p *patchParser) hunk() (hunk, error) {
	var h hunk
	for ; strings.HasPrefix(p.peek(), "@@"); p.at++ {
		a := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(p.peek()[2:]), "@@"))
		if a != "" && !lineNumbers().MatchString(a) {
			h.anchors = append(h.anchors, a)
		}
	}
	for ; !p.done(); p.at++ {
		line := p.peek()
		switch {
		case strings.HasPrefix(line, "@@"), strings.HasPrefix(line, endPatch), sectionOf(line) != "":
			h.lines = trimBlank(h.lines)
			return h, nil
		case strings.HasPrefix(line, endOfFile):
			h.end = true
			p.at++
			return h, nil
		case !h.add(line):
			return h, fmt.Errorf("want a line that begins with a space, + or -, not %s", quoted(line))
		}
	}
	h.lines = trimBlank(h.lines)
	return h, nil
}

// lineNumbers matches line numbers of a unified diff, which models write in place of an anchor.
var lineNumbers = plaintext.Pattern(`^-\d+(,\d+)? \+\d+(,\d+)?( @@.*)?$`)

// add adds a line to the hunk. It returns false if the line is not part of a hunk.
func (h *hunk) add(line string) bool {
	switch {
	case line == "": // models leave out the space of an empty line
		h.lines = append(h.lines, patchLine{op: ' '})
	case strings.HasPrefix(line, `\`): // "\ No newline at end of file" of a unified diff
	case strings.IndexByte(" +-", line[0]) >= 0:
		h.lines = append(h.lines, patchLine{op: line[0], text: line[1:]})
	default:
		return false
	}
	return true
}

// trimBlank removes empty context lines at the end. They separate hunks and belong to none.
func trimBlank(lines []patchLine) []patchLine {
	for len(lines) > 0 && lines[len(lines)-1] == (patchLine{op: ' '}) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// applyHunks returns text with the hunks applied. The error names the first hunk that does not
// apply. work is what may still be compared: see maxCompared.
func applyHunks(text string, hunks []hunk, work *int) (string, error) {
	bom := ""
	if rest, ok := strings.CutPrefix(text, string(byteOrderMark)); ok {
		bom, text = string(byteOrderMark), rest
	}
	if *work -= splitLine * strings.Count(text, "\n"); *work < 0 {
		return "", errTooLong
	}
	lines := slices.Collect(strings.Lines(text))
	end := "\n"
	if len(lines) > 0 && strings.HasSuffix(lines[0], "\r\n") {
		end = "\r\n"
	}
	var out []string
	f := newFinder(lines, work)
	done := 0 // number of input lines that are copied to out or replaced
	for i, h := range hunks {
		at, err := h.place(f, done)
		if err != nil {
			return "", fmt.Errorf("hunk %d of %d %w", i+1, len(hunks), err)
		}
		out = append(out, lines[done:at]...)
		replaced, n := h.replace(lines[at:], end)
		out = append(out, replaced...)
		done = at + n
	}
	out = append(out, lines[done:]...)
	for i := range max(0, len(out)-1) {
		if !strings.HasSuffix(out[i], "\n") { // no longer the last line
			out[i] += end
		}
	}
	return bom + strings.Join(out, ""), nil
}

// replace returns the lines that replace those at the hunk's place, and the number of lines
// replaced. Context lines stay as they are in the file.
func (h *hunk) replace(lines []string, end string) ([]string, int) {
	var out []string
	n := 0
	for _, l := range h.lines {
		switch {
		case l.op == '-':
			n++
		case l.op == ' ':
			out = append(out, lines[n])
			n++
		default:
			out = append(out, l.text+end)
		}
	}
	// A patch does not say whether the file's last line has a line break.
	last := len(out) - 1
	if n == len(lines) && n > 0 && last >= 0 && !strings.HasSuffix(lines[n-1], "\n") {
		out[last] = withoutBreak(out[last])
	}
	return out, n
}

// place returns the index of the first line of the hunk in the file, which is at least from.
func (h *hunk) place(f *finder, from int) (int, error) {
	old := h.old()
	behind := from
	for _, a := range h.anchors {
		i := slices.IndexFunc(f.lines[behind:], func(l string) bool {
			return strings.TrimSpace(l) == strings.TrimSpace(a)
		})
		if i < 0 {
			return 0, fmt.Errorf("does not apply: there is no line %s", quoted(a))
		}
		from, behind = behind+i, behind+i+1 // the anchor may also be the first line of the hunk
	}
	// A hunk that only adds lines adds them behind its anchors, or at the end of the file.
	if len(old) == 0 {
		if len(h.anchors) > 0 {
			return behind, nil
		}
		return len(f.lines), nil
	}
	// If no place fits exactly, white space at the ends of lines and the normal form may differ.
	for _, trimmed := range []bool{false, true} {
		found, err := f.find(old, from, trimmed)
		if err != nil {
			return 0, err
		}
		if h.end {
			found = slices.DeleteFunc(found, func(at int) bool { return at+len(old) != len(f.lines) })
		}
		switch {
		case len(found) == 1 || len(found) > 1 && len(h.anchors) > 0:
			// Behind an anchor, the first place is meant.
			return found[0], nil
		case len(found) > 1:
			for i := range found {
				found[i]++
			}
			return 0, fmt.Errorf("matches more than once, in %s; give more lines around it", lineList(found))
		}
	}
	return 0, h.mismatch(f, from)
}

// mismatch returns an error with the reason why a hunk does not apply. It shows the most similar
// lines.
func (h *hunk) mismatch(f *finder, from int) error {
	old := h.old()
	if from > 0 {
		if found, err := f.find(old, 0, true); err != nil {
			return err
		} else if len(found) > 0 {
			return errors.New("belongs before the previous hunk; put the hunks in the order of the file")
		}
	}
	near := closest(strings.Join(f.lines, "\n")+"\n", strings.Join(old, "\n"))
	return fmt.Errorf("does not apply: its lines are not in the file%s",
		strings.ReplaceAll(near, "old_text", "the patch"))
}
