package markup

import (
	"cmp"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// neighbours returns the characters on both sides of the inline n: 0 at the edge of a block, and a
// punctuation mark for anything that is not text.
func (r *renderer) neighbours(n ast.Node) (before, after rune) {
	return r.neighbour(n, ast.Node.PreviousSibling, utf8.DecodeLastRuneInString),
		r.neighbour(n, ast.Node.NextSibling, utf8.DecodeRuneInString)
}

// neighbour returns the character on one side of n, where next leads. decode takes the character
// from the near end of a text. If n is the last on its side, the neighbour of its parent counts.
func (r *renderer) neighbour(n ast.Node, next func(ast.Node) ast.Node,
	decode func(string) (rune, int),
) rune {
	for ; n != nil && n.Type() == ast.TypeInline; n = n.Parent() {
		s := next(n)
		if s == nil {
			continue
		}
		shown := "x" // a letter when in doubt, because it is the harder case
		switch s := s.(type) {
		case *ast.Text:
			text := cleaned(unescape(string(s.Segment.Value(r.src))))
			// A line break follows its text, which is empty if n ends the line.
			if (s.SoftLineBreak() || s.HardLineBreak()) && (n.PreviousSibling() == s || text == "") {
				return '\n'
			}
			shown = cmp.Or(text, shown)
		case *ast.CodeSpan, *ast.RawHTML:
			// In a link, code becomes text: see codeSpan.
			if r.w.active[link] == 0 {
				return '-'
			}
		case *ast.AutoLink, *ast.Link, *ast.Image:
		default:
			shown = cmp.Or(r.plainText(s), shown)
		}
		c, _ := decode(shown)
		return c
	}
	return 0
}

// isWord reports whether c is part of a word.
func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// walk calls f for each node below n.
func walk(n ast.Node, f func(ast.Node)) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		f(c)
		walk(c, f)
	}
}
