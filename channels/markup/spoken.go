package markup

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// Spoken returns what is read aloud of md: its text without markup. Code, tables and addresses are
// left out, since nobody can follow them by ear; of a link the label stays. It is "" if nothing is
// left.
func Spoken(md string) string {
	md = strings.ToValidUTF8(md, "\uFFFD")
	if isAbsurd(md) {
		return ""
	}
	r := newRenderer([]byte(md), &spoken)
	r.blocks(markdown.Parse(text.NewReader(r.src)))
	if !r.visible {
		return ""
	}
	r.finish()
	return strings.TrimSpace(r.out.String())
}

var spoken = dialect{
	bullets:  []string{""},
	number:   ". ",
	escape:   escapeNothing,
	pre:      func(*renderer, string, string) {}, // also what a table becomes
	code:     (*renderer).text,
	link:     spokenLink,
	bareLink: func(*renderer, *ast.AutoLink) {},
}

// spokenLink writes the label of a link, unless that is its address.
func spokenLink(r *renderer, n ast.Node, t target, _ string) {
	if shown := r.plainText(n); shown != t.address {
		r.open[link]++
		r.inlines(n)
		r.open[link]--
	}
}
