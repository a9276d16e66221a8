package markup

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// whatsAppLiteral returns the text on both sides of n if its style can't be shown: nothing in
// prose, but the stars where they probably belong to arithmetic or code. 2*3*4 is not 234.
func whatsAppLiteral(r *renderer, n ast.Node) string {
	e, ok := n.(*ast.Emphasis)
	if !ok {
		return ""
	}
	stars := strings.Repeat("*", e.Level) // Markdown, too, ignores "_" within words
	if _, ok := n.PreviousSibling().(*ast.AutoLink); ok {
		return strings.ReplaceAll(stars, "*", "%2A") // part of the address
	}
	before := r.textBeside(n, ast.Node.PreviousSibling)
	after := r.textBeside(n, ast.Node.NextSibling)
	// These are the words that touch the stars from outside, or "".
	left := before[len(strings.TrimRightFunc(before, isWord)):]
	right := after[:len(after)-len(strings.TrimLeftFunc(after, isWord))]
	inner := r.plainText(n)
	between := left != "" && right != ""
	if e.Level > 1 && !between {
		return "" // bold at the beginning or the end of a word
	}
	c, _ := utf8.DecodeLastRuneInString(left)
	edge, _ := utf8.DecodeRuneInString(inner)
	if isOperand(left, c, edge) && (between || isTerm(c, inner)) {
		return stars
	}
	c, _ = utf8.DecodeRuneInString(right)
	edge, _ = utf8.DecodeLastRuneInString(inner)
	if isOperand(right, c, edge) && (between || isTerm(c, inner)) {
		return stars
	}
	return ""
}

// isOperand reports whether a word looks like an operand in a formula: a number, a variable of one
// letter, or anything beside a bracket. The character c of the word touches a star, and edge is on
// the other side of the star. Words of scripts without spaces are not operands.
func isOperand(word string, c, edge rune) bool {
	if word == "" || c >= utf8.RuneSelf || edge >= utf8.RuneSelf {
		return false
	}
	return unicode.IsDigit(c) || len(word) == 1 || strings.ContainsRune("()[]{}", edge)
}

// isTerm reports whether inner, beside a word that ends with c, looks more like a formula than like
// prose, such as the plural of an emphasised word.
func isTerm(c rune, inner string) bool {
	return unicode.IsDigit(c) ||
		strings.ContainsFunc(inner, func(c rune) bool {
			return !unicode.IsLetter(c) && !strings.ContainsRune(" -'’", c)
		})
}

// textBeside returns the plain text on one side of the inline n.
func (r *renderer) textBeside(n ast.Node, next func(ast.Node) ast.Node) string {
	for ; n != nil && n.Type() == ast.TypeInline; n = n.Parent() {
		switch s := next(n).(type) {
		case nil:
			continue
		case *ast.Text:
			return cleaned(unescape(string(s.Segment.Value(r.src))))
		case *ast.Emphasis:
			return r.plainText(s)
		default:
			return ""
		}
	}
	return ""
}
