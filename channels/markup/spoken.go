package markup

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// Spoken returns the text of md to read aloud, without markup. It leaves out code, tables and
// addresses, because nobody can follow them by ear, and keeps the labels of links. It returns "" if
// nothing is left.
func Spoken(md string) string {
	md = strings.ToValidUTF8(md, "\uFFFD")
	if isTooComplex(md) {
		return ""
	}
	r := newRenderer([]byte(md), &spoken)
	r.blocks(markdown().Parse(text.NewReader(r.src)))
	if !r.w.visible {
		return ""
	}
	r.w.finish()
	return strings.TrimSpace(r.w.out.String())
}

var spoken = dialect{
	bullets:  []string{""},
	number:   ". ",
	escape:   escapeNothing,
	pre:      func(*writer, string, string) {}, // also what a table becomes
	code:     (*writer).text,
	link:     spokenLink,
	bareLink: func(*renderer, *ast.AutoLink) {},
}

// spokenLink writes the label of a link, unless that is its address.
func spokenLink(r *renderer, n ast.Node, t target, _ string) {
	if shown := r.plainText(n); shown != t.address {
		r.w.active[link]++
		r.inlines(n)
		r.w.active[link]--
	}
}
