package markup

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// formulaStars returns the stars of the emphasis n if they probably belong to arithmetic or code,
// and otherwise "". 2*3*4 is not 234, and 5*x*y is not 5xy.
func formulaStars(r *renderer, n ast.Node) string {
	e, ok := n.(*ast.Emphasis)
	if !ok {
		return ""
	}
	stars := strings.Repeat("*", e.Level) // Markdown, too, ignores "_" within words
	before := r.textBeside(n, ast.Node.PreviousSibling)
	after := r.textBeside(n, ast.Node.NextSibling)
	// These are the words that touch the stars from outside, or "".
	left := before[len(strings.TrimRightFunc(before, isWord)):]
	right := after[:len(after)-len(strings.TrimLeftFunc(after, isWord))]
	inner := r.sourceOf(n)
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

// nearby is how many bytes of a text formulaStars examines, so that nested emphasis costs little.
const nearby = 256

// textBeside returns the text on one side of the inline n, as far as it is near.
func (r *renderer) textBeside(n ast.Node, next func(ast.Node) ast.Node) string {
	for ; n != nil && n.Type() == ast.TypeInline; n = n.Parent() {
		s := next(n)
		switch s := s.(type) {
		case nil:
			continue
		case *ast.Text:
			text := string(s.Segment.Value(r.src))
			if n.PreviousSibling() == s {
				if s.SoftLineBreak() || s.HardLineBreak() {
					return "" // n begins its line
				}
				text = text[max(0, len(text)-nearby):]
			}
			return cleaned(unescape(text[:min(nearby, len(text))]))
		case *ast.Emphasis:
			return r.sourceOf(s)
		default:
			return ""
		}
	}
	return ""
}

// sourceOf returns the source of the text in n, or "" if n begins or ends with something else. It
// leaves out the middle of a long text.
func (r *renderer) sourceOf(n ast.Node) string {
	first, last := n.FirstChild(), n.LastChild()
	for first != nil && first.HasChildren() {
		first = first.FirstChild()
	}
	for last != nil && last.HasChildren() {
		last = last.LastChild()
	}
	from, ok := first.(*ast.Text)
	to, also := last.(*ast.Text)
	if !ok || !also {
		return ""
	}
	src := r.src[from.Segment.Start:to.Segment.Stop]
	if n := len(src) - nearby; n > nearby {
		return strings.ToValidUTF8(string(src[:nearby])+string(src[n:]), "")
	}
	return string(src)
}
