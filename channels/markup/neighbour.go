package markup

import (
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// neighbours returns the characters on both sides of n, an inline: 0 for the edge of a
// block, a punctuation mark for what is no text.
func neighbours(n ast.Node, src []byte) (before, after rune) {
	return neighbour(n, src, ast.Node.PreviousSibling, utf8.DecodeLastRune),
		neighbour(n, src, ast.Node.NextSibling, utf8.DecodeRune)
}

func neighbour(n ast.Node, src []byte, next func(ast.Node) ast.Node,
	decode func([]byte) (rune, int),
) rune {
	for ; n != nil && n.Type() == ast.TypeInline; n = n.Parent() {
		switch s := next(n).(type) {
		case nil:
			if n.Parent() != nil && n.Parent().Type() == ast.TypeInline {
				if k := n.Parent().Kind(); k == ast.KindLink || k == ast.KindImage {
					return ')'
				}
			}
			continue
		case *ast.Text:
			if n.PreviousSibling() == s && (s.SoftLineBreak() || s.HardLineBreak()) {
				return '\n'
			}
			c, _ := decode([]byte(unescape(string(s.Segment.Value(src)))))
			if c == utf8.RuneError {
				return '-'
			}
			return c
		case *ast.AutoLink:
			return 'x'
		default:
			return '-'
		}
	}
	return 0
}

// isWord reports whether c is part of a word.
func isWord(c rune) bool { return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c) }

// walk calls f for each node below n.
func walk(n ast.Node, f func(ast.Node)) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		f(c)
		walk(c, f)
	}
}
