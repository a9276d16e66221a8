package markup

import (
	"strings"

	"github.com/rivo/uniseg"
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
	ansiCode    = "\x1b[36m"
	ansiCodeEnd = "\x1b[39m"
)

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

func escapeANSI(r *renderer, s string) { r.out.WriteString(s) } // s is already clean

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

func ansiPre(r *renderer, _, s string) {
	first := true
	for line := range strings.SplitSeq(displayed(s), "\n") {
		for _, piece := range wrap(line, r.columnsLeft(first), r.columnsLeft(false), true) {
			r.line(ansiCode+piece+ansiCodeEnd, first)
			first = false
		}
	}
}

func ansiCodeSpan(r *renderer, s string) {
	s = strings.TrimRight(displayed(s), " ")
	if strings.TrimFunc(s, isBlank) == "" {
		r.text(s)
		return
	}
	r.writeUnit(ansiCode + s + ansiCodeEnd)
}

func ansiBareLink(r *renderer, n *ast.AutoLink) {
	r.active[link]++
	r.text(string(n.Label(r.src)))
	r.active[link]--
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
	sub.finish()
	if sub.out.Len() == 0 {
		return
	}
	for i, line := range wrap(sub.out.String(), r.columnsLeft(true), r.columnsLeft(false), false) {
		r.line(line, i == 0)
	}
	r.visible = r.visible || sub.visible
}

// line writes one line of a paragraph or of code.
func (r *renderer) line(s string, first bool) {
	if !first {
		r.pendingBreaks = 1
	}
	r.breakLines()
	r.out.WriteString(s)
	r.visible = r.visible || strings.ContainsFunc(s, isVisible)
	r.fresh, r.bulleted = false, false
}

// columnsLeft returns the columns beside the indentation, on the current line or a following one;
// 0: no limit. It begins another line if too few are left.
func (r *renderer) columnsLeft(first bool) int {
	if r.width == 0 {
		return 0
	}
	if !first || r.pendingBreaks > 0 {
		return max(1, r.width-uniseg.StringWidth(r.indent))
	}
	column := r.column()
	if r.width-column < leastRoom/2 {
		r.pendingBreaks = 1
		return r.columnsLeft(false)
	}
	return r.width - column
}

// column returns the width of the last written line.
func (r *renderer) column() int {
	s := r.out.String()
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return uniseg.StringWidth(sequence.ReplaceAllString(s, ""))
}

// indentBy lengthens the indentation if enough room is left for text.
func (r *renderer) indentBy(s string) {
	if r.width == 0 || uniseg.StringWidth(r.indent+s) <= r.width-leastRoom {
		r.indent += s
	}
}
