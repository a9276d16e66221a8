package markup

import (
	"strings"

	"github.com/yuin/goldmark/ast"
)

// ANSI renders md for a terminal of the given width in columns; 0 or less means no wrapping. Styles
// are escape sequences of ECMA-48, each closed on its own line. Control characters in md are
// removed.
func ANSI(md string, width int) string {
	return renderIn(md, &ansi, max(0, width)).out.String()
}

// leastRoom is the minimum number of columns for text on a line, whatever its indentation.
const leastRoom = 16

const (
	// Code is cyan. The end restores the terminal's own colour and leaves other styles as they are.
	ansiCode    = "\x1b[36m"
	ansiCodeEnd = "\x1b[39m"
)

// ansi is the dialect of terminals. Each style has an end of its own, so that styles can be nested:
// see closing.
var ansi = dialect{
	marks: [styles]mark{
		bold:   {"\x1b[1m", "\x1b[22m"},
		italic: {"\x1b[3m", "\x1b[23m"},
		strike: {"\x1b[9m", "\x1b[29m"},
		hidden: {"||", "||"}, // a terminal could not reveal it
		link:   {"\x1b[4m", "\x1b[24m"},
	},
	bullets:  []string{"• "},
	number:   ". ",
	quote:    "│ ",
	lazy:     true,
	wraps:    true,
	plain:    &plain,
	escape:   escapeANSI,
	pre:      ansiPre,
	code:     ansiCodeSpan,
	link:     linkAsText,
	bareLink: ansiBareLink,
}

func escapeANSI(w *writer, s string) { w.out.WriteString(s) } // s is already clean

// displayed returns s without characters that a terminal would execute instead of showing: control
// characters, and those that change the direction of text. A tab becomes four blanks.
func displayed(s string) string {
	s = strings.ReplaceAll(cleaned(s), "\t", "    ")
	return strings.Map(func(c rune) rune {
		if c >= '\u202a' && c <= '\u202e' || c >= '\u2066' && c <= '\u2069' || c == '\u061c' ||
			c == '\u2028' || c == '\u2029' {
			return -1
		}
		return c
	}, s)
}

// ansiPre writes a code block line by line, each with its own colour. Lines that are too long are
// broken anywhere, because blanks in code matter.
func ansiPre(w *writer, _, s string) {
	first := true
	for line := range strings.SplitSeq(displayed(s), "\n") {
		for _, piece := range wrap(line, w.columnsLeft(first), w.columnsLeft(false), true) {
			w.line(ansiCode+piece+ansiCodeEnd, first)
			first = false
		}
	}
}

// ansiCodeSpan writes inline code in colour. Code of blanks only is written as text, because a
// colour would not show.
func ansiCodeSpan(w *writer, s string) {
	s = strings.TrimRight(displayed(s), " ")
	if strings.TrimFunc(s, isBlank) == "" {
		w.text(s)
		return
	}
	w.writeUnit(ansiCode + s + ansiCodeEnd)
}

// ansiBareLink writes an address in the style of a link. It has no label that could differ.
func ansiBareLink(r *renderer, n *ast.AutoLink) {
	r.w.active[link]++
	r.w.text(string(n.Label(r.src)))
	r.w.active[link]--
}

// flow calls write with a renderer for one paragraph, wraps the result and writes it. In dialects
// that don't wrap, it calls write with r.
func (r *renderer) flow(write func(*renderer)) {
	if !r.d.wraps {
		write(r)
		return
	}
	sub := newRenderer(r.src, r.d)
	write(sub)
	sub.w.finish()
	if sub.w.out.Len() == 0 {
		return
	}
	first, others := r.w.columnsLeft(true), r.w.columnsLeft(false)
	for i, line := range wrap(sub.w.out.String(), first, others, false) {
		r.w.line(line, i == 0)
	}
	r.w.visible = r.w.visible || sub.w.visible
}
