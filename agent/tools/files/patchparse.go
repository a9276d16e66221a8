package files

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

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
func (h *hunk) old() []patchLine {
	return slices.DeleteFunc(slices.Clone(h.lines), func(l patchLine) bool { return l.op == '+' })
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

// hunk parses one hunk.
func (p *patchParser) hunk() (hunk, error) {
	var h hunk
	for ; strings.HasPrefix(p.peek(), "@@"); p.at++ {
		a := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(p.peek()[2:]), "@@"))
		if a != "" && !lineNumbers.MatchString(a) {
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
var lineNumbers = regexp.MustCompile(`^-\d+(,\d+)? \+\d+(,\d+)?( @@.*)?$`)

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
