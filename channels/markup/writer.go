package markup

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// A writer writes text in a dialect: escapes, marks of styles, line breaks and indentation. If the
// dialect is lazy, it writes opening marks with the text, and closing marks after it, before any
// blanks.
type writer struct {
	d     *dialect
	width int // in columns, for dialects that wrap; 0: no limit

	out     strings.Builder
	visible bool // something other than white space was written

	// Only in dialects that need them:
	units     int // UTF-16 units of visible text
	entities  int // number of elements with tags
	addresses int // total length of the addresses in tags, in bytes

	pendingBreaks int         // pending line breaks
	indent        string      // prefix of each line, inside lists and quotations
	active        [styles]int // number of times each style applies

	// Only for lazy dialects:
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

// begin and end enclose the text to which a style applies.
func (w *writer) begin(s style) {
	w.active[s]++
	if !w.d.lazy {
		w.breakLines()
		w.entities++
		w.out.WriteString(w.d.marks[s].open)
	}
}

func (w *writer) end(s style) {
	w.active[s]--
	if !w.d.lazy {
		w.out.WriteString(w.d.marks[s].close)
	}
}

// breakLines writes the pending line breaks, but none at the beginning of the text.
func (w *writer) breakLines() {
	if w.out.Len() == 0 {
		w.pendingBreaks = 0
	}
	if w.pendingBreaks == 0 {
		return
	}
	if w.d.lazy {
		w.endLine()
		return
	}
	blank := strings.TrimRight(w.indent, " ")
	for ; w.pendingBreaks > 1; w.pendingBreaks-- {
		w.put("\n" + blank)
	}
	w.pendingBreaks = 0
	w.put("\n" + w.indent)
}

// text writes visible text and indents each line.
func (w *writer) text(s string) {
	if w.d.lazy && (w.active[link] > 0 || w.active[heading] > 0) {
		s = strings.ReplaceAll(s, "\n", " ") // they have no lines
	}
	for {
		line, rest, more := strings.Cut(s, "\n")
		if line != "" {
			w.breakLines()
			w.put(line)
		}
		if !more {
			return
		}
		w.pendingBreaks++
		s = rest
	}
}

// marker writes the prefix of a line.
func (w *writer) marker(s string) {
	if !w.d.lazy {
		w.text(s)
		return
	}
	if w.d.wraps {
		w.columnsLeft(true) // or a new line, because many nested lists may share one
	}
	w.breakLines()
	w.out.WriteString(s)
	w.fresh, w.bulleted = true, s != w.d.quote
}

// put writes visible text of one line.
func (w *writer) put(s string) {
	w.visible = w.visible || strings.ContainsFunc(s, isVisible)
	if !w.d.lazy {
		w.d.escape(w, s)
		return
	}
	w.putLazily(s)
}

// pre renders text in which columns and line breaks matter.
func (w *writer) pre(language, s string) {
	if s == "" || w.d.lazy && !strings.ContainsFunc(s, isVisible) {
		return
	}
	w.d.pre(w, language, s)
}

// putLazily writes visible text of one line. Blanks at its end are held back. They are written once
// text follows, after closing marks and before opening ones.
func (w *writer) putLazily(s string) {
	if s = cleaned(s); w.d.wraps {
		s = displayed(s)
	}
	body := strings.TrimLeftFunc(s, isBlank)
	// Blanks at the beginning of a line are dropped, because they could be an indentation.
	if !w.fresh {
		w.held += s[:len(s)-len(body)]
	}
	if body == "" {
		return
	}
	trimmed := strings.TrimRightFunc(body, isBlank)
	w.sync(trimmed)
	w.d.escape(w, trimmed)
	w.fresh, w.bulleted, w.closed = false, false, false
	w.held = body[len(trimmed):]
}

// writeUnit writes s unchanged, as a unit to which styles apply.
func (w *writer) writeUnit(s string) {
	w.breakLines()
	w.sync(s)
	w.out.WriteString(s)
	w.visible = true
	w.fresh, w.bulleted, w.closed = false, false, false
}

// sync closes the marks that do not apply to next, writes the held blanks, and opens the marks that
// apply.
func (w *writer) sync(next string) {
	keep := 0
	for keep < len(w.written) && w.applies(w.written[keep]) {
		keep++
	}
	w.closeMarks(keep)
	if w.held != "" {
		w.out.WriteString(w.held)
		w.held, w.closed = "", false
	}
	// Only the styles before masked have marks that the writer opens by itself.
	for s := range masked {
		m := w.d.marks[s]
		if s == italic && w.italic.open != "" {
			m = w.italic
		}
		if m.open == "" || w.active[s] == 0 || w.isWritten(s) {
			continue
		}
		if w.d.between != nil {
			w.out.WriteString(w.d.between(w, m.open))
		}
		w.out.WriteString(m.open)
		w.closed = false
		w.written = append(w.written, written{s, m.close})
	}
	if w.closed && w.d.between != nil {
		w.out.WriteString(w.d.between(w, next))
	}
}

// applies reports whether a mark applies to the following text.
func (w *writer) applies(m written) bool {
	other := m.style == italic && w.italic.close != "" && w.italic.close != m.close
	return w.active[m.style] > 0 && !other
}

// isWritten reports whether the mark of a style is open.
func (w *writer) isWritten(s style) bool {
	return slices.ContainsFunc(w.written, func(m written) bool { return m.style == s })
}

// closeMarks closes all but the outermost keep marks.
func (w *writer) closeMarks(keep int) {
	for i := len(w.written) - 1; i >= keep; i-- {
		w.out.WriteString(w.written[i].close)
		w.closed = true
	}
	w.written = w.written[:keep]
}

// endLine writes the pending line breaks.
func (w *writer) endLine() {
	w.closeMarks(0)
	blank := strings.TrimRight(w.indent, " ")
	if blank != "" {
		blank += " " // so that the line belongs to the quotation
	}
	if blank != "" && w.d.tight {
		w.pendingBreaks = 1
	}
	for ; w.pendingBreaks > 1; w.pendingBreaks-- {
		w.out.WriteString("\n" + blank)
	}
	w.pendingBreaks = 0
	w.out.WriteString("\n" + w.indent)
	w.held, w.fresh, w.bulleted, w.closed = "", true, false, false
}

// finish closes everything at the end of the text.
func (w *writer) finish() {
	if w.d.lazy {
		w.closeMarks(0)
	}
}

// lines writes lines unchanged, with the prefix of a quotation but without the indentation of a
// list: a fence must begin at the start of its line.
func (w *writer) lines(lines ...string) {
	before := w.indent
	quote := strings.Index(w.indent, w.d.quote)
	if quote >= 0 {
		w.indent = w.indent[:quote+len(w.d.quote)]
	} else {
		w.indent = ""
	}
	// The marker stays alone on its line.
	if w.bulleted {
		w.pendingBreaks = max(w.pendingBreaks, 1)
	}
	for i, line := range lines {
		if i > 0 {
			w.pendingBreaks = 1
		}
		w.breakLines()
		w.closeMarks(0)
		w.held = ""
		w.out.WriteString(line)
		w.fresh, w.bulleted, w.closed = false, false, false
	}
	w.visible = true
	w.indent = before
}

// line writes one line of a paragraph or of code.
func (w *writer) line(s string, first bool) {
	if !first {
		w.pendingBreaks = 1
	}
	w.breakLines()
	w.out.WriteString(s)
	w.visible = w.visible || strings.ContainsFunc(s, isVisible)
	w.fresh, w.bulleted = false, false
}

// columnsLeft returns the columns beside the indentation, on the current line or a following one;
// 0: no limit. It begins another line if too few are left.
func (w *writer) columnsLeft(first bool) int {
	if w.width == 0 {
		return 0
	}
	if !first || w.pendingBreaks > 0 {
		return max(1, w.width-uniseg.StringWidth(w.indent))
	}
	column := w.column()
	if w.width-column < leastRoom/2 {
		w.pendingBreaks = 1
		return w.columnsLeft(false)
	}
	return w.width - column
}

// column returns the width of the last written line.
func (w *writer) column() int {
	s := w.out.String()
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return uniseg.StringWidth(sequence.ReplaceAllString(s, ""))
}

// indentBy lengthens the indentation if enough room is left for text.
func (w *writer) indentBy(s string) {
	if w.width == 0 || uniseg.StringWidth(w.indent+s) <= w.width-leastRoom {
		w.indent += s
	}
}

// styled reports whether any style with marks applies.
func (w *writer) styled() bool {
	// These are the styles before link: bold, italic, strike and hidden.
	for s := range link {
		if w.active[s] > 0 && w.d.marks[s].open != "" {
			return true
		}
	}
	return false
}

// unfenced returns code in which no line looks like the end of its fence.
func unfenced(s string) string {
	if !strings.Contains(s, "```") {
		return s
	}
	return strings.ReplaceAll(s, "``", "`"+noSpace+"`")
}

// lastRune returns the last character of the text, 0 at its beginning.
func (w *writer) lastRune() rune {
	s := w.out.String()
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
