package files

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A filePatch is what a patch does to one file.
type filePatch struct {
	path   string // of the file as it is; for a new one, as it shall be
	moveTo string // or ""
	add    bool
	remove bool
	hunks  []hunk // of a new file one at most, of added lines only
}

// A hunk replaces lines.
type hunk struct {
	anchors []string // lines that come before, in this order
	start   int      // line of the old file where it begins, from 1; 0: not known
	after   bool     // it replaces nothing, and stands behind line start
	end     bool     // it ends where the file does
	lines   []patchLine
}

// A patchLine is one line of a hunk.
type patchLine struct {
	op    byte // ' ', '-' or '+'
	text  string
	noEnd bool // the line has no line break
}

// old returns the lines that the hunk wants to find.
func (h *hunk) old() []patchLine { return h.without('+') }

func (h *hunk) without(op byte) []patchLine {
	return slices.DeleteFunc(slices.Clone(h.lines), func(l patchLine) bool { return l.op == op })
}

// parsePatch reads a patch in one of the two forms that models write.
func parsePatch(text string) ([]filePatch, error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r") // the file decides how lines end
	}
	p := &patchParser{lines: lines}
	var err error
	if slices.ContainsFunc(lines, func(l string) bool { return sectionOf(l) != "" }) {
		err = p.sections()
	} else {
		err = p.unified()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the patch can't be read: line %d: %w", min(p.at, len(lines)-1)+1, err)
	case len(p.files) == 0:
		return nil, errors.New(`there are no changes in the patch; want a unified diff, ` +
			`or "*** Begin Patch", "*** Update File: PATH" and so on`)
	}
	return p.files, nil
}

// A patchParser reads a patch line by line.
type patchParser struct {
	lines []string
	at    int
	files []filePatch
}

// peek returns the n-th line from here, or "" after the last.
func (p *patchParser) peek(n int) string {
	if p.at+n < len(p.lines) {
		return p.lines[p.at+n]
	}
	return ""
}

func (p *patchParser) done() bool { return p.at >= len(p.lines) }

// The sections of the form with stars.
const (
	updateFile = "*** Update File:"
	addFile    = "*** Add File:"
	deleteFile = "*** Delete File:"
	moveTo     = "*** Move to:"
	endOfFile  = "*** End of File"
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
)

// sectionOf returns how a line begins that begins a file, or "".
func sectionOf(line string) string {
	for _, s := range []string{updateFile, addFile, deleteFile} {
		if strings.HasPrefix(line, s) {
			return s
		}
	}
	return ""
}

// sections reads the form with stars.
func (p *patchParser) sections() error {
	for !p.done() {
		line := p.peek(0)
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

// section reads what follows the beginning of a file.
func (p *patchParser) section(s string, f *filePatch) error {
	switch s {
	case deleteFile:
		f.remove = true
		return nil
	case addFile:
		f.add = true
		var h hunk
		for ; !p.done() && strings.HasPrefix(p.peek(0), "+"); p.at++ {
			h.lines = append(h.lines, patchLine{op: '+', text: p.peek(0)[1:]})
		}
		f.hunks = []hunk{h}
		return nil
	}
	if rest, ok := strings.CutPrefix(p.peek(0), moveTo); ok {
		f.moveTo = strings.TrimSpace(rest)
		p.at++
	}
	for !p.done() && sectionOf(p.peek(0)) == "" && !strings.HasPrefix(p.peek(0), endPatch) {
		h, err := p.starHunk()
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

// starHunk reads one hunk of the form with stars.
func (p *patchParser) starHunk() (hunk, error) {
	var h hunk
	for ; strings.HasPrefix(p.peek(0), "@@"); p.at++ {
		a := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(p.peek(0)[2:]), "@@"))
		if a != "" && !hunkHeader.MatchString(p.peek(0)) {
			h.anchors = append(h.anchors, a)
		}
	}
	for ; !p.done(); p.at++ {
		line := p.peek(0)
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

// add takes in a line of a hunk, if it is one.
func (h *hunk) add(line string) bool {
	switch {
	case line == "": // models leave out the space of an empty line
		h.lines = append(h.lines, patchLine{op: ' '})
	case strings.HasPrefix(line, `\`): // \ No newline at end of file
		if n := len(h.lines); n > 0 {
			h.lines[n-1].noEnd = true
		}
	case strings.IndexByte(" +-", line[0]) >= 0:
		h.lines = append(h.lines, patchLine{op: line[0], text: line[1:]})
	default:
		return false
	}
	return true
}

// trimBlank removes empty lines of context at the end, which stand between hunks and belong to
// none.
func trimBlank(lines []patchLine) []patchLine {
	for len(lines) > 0 && lines[len(lines)-1] == (patchLine{op: ' '}) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// hunkHeader is the line before a hunk of a unified diff.
var hunkHeader = regexp.MustCompile(
	`^@@ +-(\d{1,9})(?:,(\d{1,9}))? +\+(\d{1,9})(?:,(\d{1,9}))? +@@`)

// unified reads a unified diff, also one that git has made.
func (p *patchParser) unified() error {
	var f filePatch
	begun := false // f has something in it
	same := ""     // the name of the file in git's line
	finish := func() {
		if begun {
			p.files = append(p.files, f)
		}
		f, begun = filePatch{}, false
	}
	for !p.done() {
		line := p.peek(0)
		switch {
		case strings.HasPrefix(line, "diff --git "):
			finish()
			same = sameName(line[len("diff --git "):])
		case line == "-- ": // the end of a mail
			finish()
		case same != "" && strings.HasPrefix(line, "new file mode "):
			f.path, f.add, begun = same, true, true
		case same != "" && strings.HasPrefix(line, "deleted file mode "):
			f.path, f.remove, begun = same, true, true
		case p.atFile():
			if len(f.hunks) > 0 {
				finish()
			}
			if err := f.names(line[4:], p.peek(1)[4:]); err != nil {
				return err
			}
			begun = true
			p.at++
		case strings.HasPrefix(line, "rename from "):
			f.path, begun = strings.TrimPrefix(line, "rename from "), true
		case strings.HasPrefix(line, "rename to "):
			f.moveTo = strings.TrimPrefix(line, "rename to ")
		case strings.HasPrefix(line, "GIT binary patch"), strings.HasPrefix(line, "Binary files "):
			return errors.New("changes of binary files can't be applied")
		case strings.HasPrefix(line, "@@"):
			if f.path == "" {
				return errors.New(`the lines "--- PATH" and "+++ PATH" are missing before this`)
			}
			h, err := p.unifiedHunk()
			if err != nil {
				return err
			}
			f.hunks = append(f.hunks, h)
			continue
		case len(f.hunks) > 0 && !headline.MatchString(line):
			return fmt.Errorf("want a line that begins with a space, + or -, not %s", quoted(line))
		}
		p.at++ // other lines are for people
	}
	finish()
	return nil
}

// headline is what may stand between the hunks of one file and the names of the next.
var headline = regexp.MustCompile("^(\\s*$|```|index |Index: |=====|old mode |new mode |" +
	"similarity |dissimilarity |rename |copy |Only in |diff )")

// sameName returns the name in "a/NAME b/NAME", or "".
func sameName(s string) string {
	before, after := s[:len(s)/2], s[min(len(s)/2+1, len(s)):]
	name, ok := strings.CutPrefix(before, "a/")
	if !ok || "b/"+name != after {
		return ""
	}
	return name
}

// atFile reports whether the names of a file stand here.
func (p *patchParser) atFile() bool {
	return strings.HasPrefix(p.peek(0), "--- ") && strings.HasPrefix(p.peek(1), "+++ ")
}

// names takes in the names of a file before and after.
func (f *filePatch) names(before, after string) error {
	before, after = diffName(before), diffName(after)
	if strings.HasPrefix(before, "a/") && (strings.HasPrefix(after, "b/") || after == devNull) ||
		before == devNull && strings.HasPrefix(after, "b/") { // as git writes them
		before, after = strings.TrimPrefix(before, "a/"), strings.TrimPrefix(after, "b/")
	}
	switch {
	case before == "" || after == "" || before == devNull && after == devNull:
		return errors.New("the path is missing")
	case before == devNull:
		f.path, f.add = after, true
	case after == devNull:
		f.path, f.remove = before, true
	default:
		f.path = before
		if after != before {
			f.moveTo = after
		}
	}
	return nil
}

const devNull = "/dev/null"

// diffName returns a name without the time that may follow it.
func diffName(s string) string {
	s, _, _ = strings.Cut(s, "\t")
	s = strings.TrimSpace(s)
	if name, err := strconv.Unquote(s); err == nil && strings.HasPrefix(s, `"`) {
		return name
	}
	return s
}

// unifiedHunk reads one hunk. Models count badly: the numbers of lines are believed only if they
// are right.
func (p *patchParser) unifiedHunk() (hunk, error) {
	var h hunk
	m := hunkHeader.FindStringSubmatch(p.peek(0))
	p.at++
	if m != nil {
		start, _ := strconv.Atoi(m[1]) // nine digits at most
		h.start = start
		h.after = m[2] != "" && strings.Trim(m[2], "0") == ""
		if n := p.counted(count(m[2]), count(m[4])); n >= 0 {
			for range n {
				h.add(p.peek(0))
				p.at++
			}
			return h, nil
		}
	}
	for ; !p.done() && !strings.HasPrefix(p.peek(0), "@@"); p.at++ {
		line := p.peek(0)
		if strings.HasPrefix(line, "diff --git ") || line == "-- " || p.atFile() || !h.add(line) {
			break // what is no such line is looked at next
		}
	}
	h.lines = trimBlank(h.lines)
	if len(h.lines) == 0 {
		return h, errors.New("there are no lines after the @@")
	}
	return h, nil
}

// count returns a number of lines in a header, where none means 1.
func count(s string) int {
	if s == "" {
		return 1
	}
	n, _ := strconv.Atoi(s) // nine digits at most
	return n
}

// counted returns how many lines a hunk has that has as many old and new ones, or -1 if what
// follows is not such a hunk.
func (p *patchParser) counted(before, after int) int {
	n := 0
	for ; before > 0 || after > 0; n++ {
		line := p.peek(n)
		if p.at+n >= len(p.lines) {
			return -1
		}
		switch {
		case strings.HasPrefix(line, `\`):
		case line == "", line[0] == ' ':
			before, after = before-1, after-1
		case line[0] == '-':
			before--
		case line[0] == '+':
			after--
		default:
			return -1
		}
		if before < 0 || after < 0 {
			return -1
		}
	}
	if strings.HasPrefix(p.peek(n), `\`) {
		n++
	}
	next := p.peek(n)
	if next != "" && strings.IndexByte(" +-", next[0]) >= 0 && !strings.HasPrefix(next, "--- ") &&
		next != "-- " {
		return -1 // it goes on
	}
	return n
}
