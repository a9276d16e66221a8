package markup

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A lazy is the state of a renderer whose dialect writes paired marks around text. It writes
// opening marks with the text, and closing marks after it, before any blanks.
type lazy struct {
	written  []written // open marks in the text, outermost first
	held     string    // blanks to write if more text follows on the line
	fresh    bool      // the line has only what the dialect wrote
	bulleted bool      // that is a list marker
	closed   bool      // the last thing written was a closing mark
	follows  bool      // markup follows the current text
	italic   mark      // mark of the current italics, if the dialect has several
}

// A written is an open mark.
type written struct {
	style style
	close string
}

// putLazily writes visible text of one line.
func (r *renderer) putLazily(s string) {
	if s = cleaned(s); r.d.wraps {
		s = displayed(s)
	}
	body := strings.TrimLeftFunc(s, isBlank)
	if !r.fresh {
		r.held += s[:len(s)-len(body)]
	}
	if body == "" {
		return
	}
	trimmed := strings.TrimRightFunc(body, isBlank)
	r.sync(trimmed)
	r.d.escape(r, trimmed)
	r.fresh, r.bulleted, r.closed = false, false, false
	r.held = body[len(trimmed):]
}

// writeUnit writes s unchanged, as a unit to which styles apply.
func (r *renderer) writeUnit(s string) {
	r.breakLines()
	r.sync(s)
	r.out.WriteString(s)
	r.visible = true
	r.fresh, r.bulleted, r.closed = false, false, false
}

// sync closes the marks that do not apply to next, writes the held blanks, and opens the marks that
// apply.
func (r *renderer) sync(next string) {
	keep := 0
	for keep < len(r.written) && r.applies(r.written[keep]) {
		keep++
	}
	r.closeMarks(keep)
	if r.held != "" {
		r.out.WriteString(r.held)
		r.held, r.closed = "", false
	}
	for s := range masked {
		m := r.d.marks[s]
		if s == italic && r.italic.open != "" {
			m = r.italic
		}
		if m.open == "" || r.active[s] == 0 || r.isWritten(s) {
			continue
		}
		if r.d.between != nil {
			r.out.WriteString(r.d.between(r, m.open))
		}
		r.out.WriteString(m.open)
		r.closed = false
		r.written = append(r.written, written{s, m.close})
	}
	if r.closed && r.d.between != nil {
		r.out.WriteString(r.d.between(r, next))
	}
}

// applies reports whether a mark applies to the following text.
func (r *renderer) applies(w written) bool {
	other := w.style == italic && r.italic.close != "" && r.italic.close != w.close
	return r.active[w.style] > 0 && !other
}

func (r *renderer) isWritten(s style) bool {
	for _, w := range r.written {
		if w.style == s {
			return true
		}
	}
	return false
}

// closeMarks closes all but the outermost keep marks.
func (r *renderer) closeMarks(keep int) {
	for i := len(r.written) - 1; i >= keep; i-- {
		r.out.WriteString(r.written[i].close)
		r.closed = true
	}
	r.written = r.written[:keep]
}

// endLine writes the pending line breaks.
func (r *renderer) endLine() {
	r.closeMarks(0)
	blank := strings.TrimRight(r.indent, " ")
	if blank != "" {
		blank += " " // so that the line belongs to the quotation
	}
	if blank != "" && r.d.tight {
		r.pendingBreaks = 1
	}
	for ; r.pendingBreaks > 1; r.pendingBreaks-- {
		r.out.WriteString("\n" + blank)
	}
	r.pendingBreaks = 0
	r.out.WriteString("\n" + r.indent)
	r.held, r.fresh, r.bulleted, r.closed = "", true, false, false
}

// finish closes everything at the end of the text.
func (r *renderer) finish() {
	if r.lazy != nil {
		r.closeMarks(0)
	}
}

// lines writes lines unchanged, with the prefix of a quotation but without the indentation of a
// list: a fence must begin at the start of its line.
func (r *renderer) lines(lines ...string) {
	before := r.indent
	quote := strings.Index(r.indent, r.d.quote)
	if quote >= 0 {
		r.indent = r.indent[:quote+len(r.d.quote)]
	} else {
		r.indent = ""
	}
	if r.bulleted {
		r.pendingBreaks = max(r.pendingBreaks, 1)
	}
	for i, line := range lines {
		if i > 0 {
			r.pendingBreaks = 1
		}
		r.breakLines()
		r.closeMarks(0)
		r.held = ""
		r.out.WriteString(line)
		r.fresh, r.bulleted, r.closed = false, false, false
	}
	r.visible = true
	r.indent = before
}

// unfenced returns code in which no line looks like the end of its fence.
func unfenced(s string) string {
	if !strings.Contains(s, "```") {
		return s
	}
	return strings.ReplaceAll(s, "``", "`"+noSpace+"`")
}

// lastRune returns the last character of the text, 0 at its beginning.
func (r *renderer) lastRune() rune {
	s := r.out.String()
	if s == "" {
		return 0
	}
	c, _ := utf8.DecodeLastRuneInString(s)
	return c
}

// isBlank reports whether c is white space, including JavaScript's definition, because several
// platforms parse text with JavaScript's regular expressions.
func isBlank(c rune) bool { return unicode.IsSpace(c) || c == '\uFEFF' }

// mayControl reports whether s may have control characters beyond ASCII. All of them begin with the
// same byte.
func mayControl(s string) bool { return strings.IndexByte(s, 0xC2) >= 0 }
