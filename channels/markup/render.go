package markup

import (
	"bytes"
	"html"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/util"
)

// A renderer walks a Markdown tree and writes it in a dialect.
type renderer struct {
	src []byte // valid UTF-8
	d   *dialect
	w   writer

	marked bool // a list marker was written; the item's first block follows on its line
	depth  int  // of the current list
}

// newRenderer returns a renderer of src in the dialect d.
func newRenderer(src []byte, d *dialect) *renderer {
	return &renderer{src: src, d: d, w: writer{d: d, fresh: d.lazy}}
}

// blocks renders the block children of n. It preserves their distance in the source: one line break
// or a blank line.
func (r *renderer) blocks(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		r.separate(c)
		r.block(c)
	}
}

// separate requests the line breaks before the block n. The first block of an item needs none,
// because it follows the marker.
func (r *renderer) separate(n ast.Node) {
	switch {
	case r.marked:
		r.marked = false
	case n.HasBlankPreviousLines(), n.Kind() == extast.KindTable: // tables don't record it
		r.w.pendingBreaks = 2
	default:
		r.w.pendingBreaks = max(r.w.pendingBreaks, 1)
	}
}

// block renders one block. Unknown blocks become their content.
func (r *renderer) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		r.heading(n)
	case *ast.ThematicBreak:
		r.flow(func(r *renderer) { r.w.text("———") })
	case *ast.CodeBlock:
		r.code("", n.Lines().Value(r.src))
	case *ast.FencedCodeBlock:
		r.code(string(n.Language(r.src)), n.Lines().Value(r.src))
	case *ast.HTMLBlock:
		lines := n.Lines().Value(r.src)
		if n.HasClosure() {
			lines = append(bytes.Clone(lines), n.ClosureLine.Value(r.src)...)
		}
		r.flow(func(r *renderer) { r.w.text(strings.TrimRight(string(lines), "\n")) })
	case *ast.Blockquote:
		r.quote(n)
	case *ast.List:
		r.list(n)
	case *extast.Table:
		r.grid(n)
	default:
		if c := n.FirstChild(); c != nil && c.Type() == ast.TypeBlock {
			r.blocks(n)
		} else {
			r.flow(func(r *renderer) { r.inlines(n) }) // Paragraph, TextBlock
		}
	}
}

// heading renders a heading with the dialect's mark, or in bold.
func (r *renderer) heading(n *ast.Heading) {
	if n.Level > len(r.d.headings) || r.w.active[quoted] > 1 {
		r.flow(func(r *renderer) { r.wrap(bold, n) })
		return
	}
	if !strings.ContainsFunc(r.plainText(n), isVisible) {
		return
	}
	r.w.marker(r.d.headings[n.Level-1])
	r.w.begin(heading)
	r.inlines(n)
	r.w.end(heading)
}

// quote renders a quotation. If the dialect encloses quotations in marks, they can't be nested: an
// inner quotation, like all quotations in other dialects, gets a prefix on each line.
func (r *renderer) quote(n ast.Node) {
	if r.d.marks[quoted].open != "" && r.w.active[quoted] == 0 {
		r.w.begin(quoted)
		r.marked = true
		r.blocks(n)
		r.w.end(quoted)
		r.marked = false
		return
	}
	before := r.w.indent
	r.w.marker(r.d.quote)
	r.w.indentBy(r.d.quote)
	r.w.active[quoted]++
	r.marked = true
	r.blocks(n)
	r.marked = false
	r.w.active[quoted]--
	r.w.indent = before
}

// list renders a list. The lines of an item are indented by the width of its marker. Items count
// from the first number, but a higher number that is written stays.
func (r *renderer) list(n *ast.List) {
	number := n.Start
	r.marked = true // the first item begins where the list begins
	r.depth++
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		r.separate(item)
		marker := r.d.bullets[min(r.depth, len(r.d.bullets))-1]
		if n.IsOrdered() {
			number = max(number, writtenNumber(r.src, item))
			marker = strconv.Itoa(number) + r.d.number
			number++
		}
		r.w.marker(marker)
		before := r.w.indent
		r.w.indentBy(strings.Repeat(" ", utf8.RuneCountInString(marker)))
		r.marked = true
		r.blocks(item)
		r.marked = false
		r.w.indent = before
	}
	r.depth--
}

// code renders a code block. language may be "".
func (r *renderer) code(language string, lines []byte) {
	code := strings.TrimSuffix(string(lines), "\n")
	language = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("+-#._", c) {
			return c
		}
		return -1
	}, language)
	r.w.pre(language, code)
}

// inlines renders the inline children of n. In lazy dialects, consecutive texts become one: see
// run.
func (r *renderer) inlines(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok && r.d.lazy {
			c = r.run(t)
			continue
		}
		r.inline(c)
	}
}

// run renders consecutive texts from t on as one, because markup may extend over several. It
// returns the last one.
func (r *renderer) run(t *ast.Text) ast.Node {
	var b strings.Builder
	for {
		b.WriteString(unescape(string(t.Segment.Value(r.src))))
		if t.SoftLineBreak() || t.HardLineBreak() {
			b.WriteByte('\n')
		}
		next, ok := t.NextSibling().(*ast.Text)
		if !ok {
			break
		}
		t = next
	}
	r.w.follows = t.NextSibling() != nil
	r.w.text(b.String())
	r.w.follows = false
	return t
}

// inline renders one inline. In lazy dialects, texts come through run instead.
func (r *renderer) inline(n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		r.w.text(unescape(string(n.Segment.Value(r.src))))
		if n.SoftLineBreak() || n.HardLineBreak() {
			r.w.text("\n")
		}
	case *ast.String:
		r.w.text(string(n.Value))
	case *ast.CodeSpan:
		r.codeSpan(n)
	case *ast.Emphasis:
		if n.Level == 1 {
			r.wrap(italic, n)
		} else {
			r.wrap(bold, n)
		}
	case *extast.Strikethrough:
		r.wrap(strike, n)
	case *spoiler:
		r.wrap(hidden, n)
	case *ast.Link:
		r.d.link(r, n, targetOf(n.Destination), "")
	case *ast.Image:
		r.d.link(r, n, targetOf(n.Destination), "image")
	case *ast.AutoLink:
		r.d.bareLink(r, n)
	case *ast.RawHTML:
		r.rawHTML(string(n.Segments.Value(r.src)))
	default:
		r.inlines(n)
	}
}

// codeSpan renders inline code. In links it becomes text, because Telegram does not support it
// there.
func (r *renderer) codeSpan(n ast.Node) {
	var code strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			code.Write(t.Segment.Value(r.src))
		}
	}
	s := strings.ReplaceAll(code.String(), "\n", " ")
	if r.w.active[link] > 0 {
		r.w.text(s)
		return
	}
	r.d.code(&r.w, s)
}

// rawHTML shows a tag unchanged, except <br>, which models use in tables.
func (r *renderer) rawHTML(tag string) {
	switch strings.ToLower(strings.ReplaceAll(tag, " ", "")) {
	case "<br>", "<br/>":
		tag = "\n"
	}
	r.w.text(tag)
}

// wrap renders the children of n in a style, unless the style already applies or can't be written
// here, or the marks are part of a formula.
func (r *renderer) wrap(s style, n ast.Node) {
	if stars := formulaStars(r, n); stars != "" {
		r.w.text(stars)
		r.inlines(n)
		r.w.text(stars)
		return
	}
	if r.w.active[s] > 0 {
		r.inlines(n) // it has the mark of the outer one
		return
	}
	if r.d.fits != nil && !r.d.fits(r, s, n) {
		mark := ""
		if r.d.literal != nil {
			mark = r.d.literal(n)
		}
		r.w.text(mark)
		r.inlines(n)
		r.w.text(mark)
		return
	}
	r.w.begin(s)
	r.inlines(n)
	r.w.end(s)
}

// isVisible reports whether c is visible on its own: not a blank, not a control or format character
// such as U+200B and U+FEFF, and not a combining mark.
func isVisible(c rune) bool {
	return !unicode.IsSpace(c) && !unicode.IsMark(c) && unicode.IsGraphic(c)
}

// unescape resolves backslash escapes and character references in one pass. It does not examine the
// results again.
func unescape(s string) string {
	if !strings.ContainsAny(s, `\&`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && util.IsPunct(s[i+1]):
			i++
			b.WriteByte(s[i])
		case c == '&':
			n := reference(s[i:])
			if n == 0 {
				b.WriteByte(c)
				continue
			}
			b.WriteString(html.UnescapeString(s[i : i+n]))
			i += n - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// referencePattern matches a character reference of CommonMark: up to seven decimal digits, up to
// six hexadecimal digits, or a name, which may not exist.
var referencePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31});`)
})

// reference returns the length of the character reference at the beginning of s, or 0 if there is
// none.
func reference(s string) int {
	found := referencePattern().FindString(s)
	// If only the beginning of a name is known, such as "not" in "&notit;", the rest remains.
	if s := html.UnescapeString(found); len(s) > 1 && strings.HasSuffix(s, ";") {
		return 0
	}
	return len(found)
}
