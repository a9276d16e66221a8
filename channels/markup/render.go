package markup

import (
	"bytes"
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/util"
)

// A renderer writes a Markdown tree in a dialect.
type renderer struct {
	src   []byte
	d     *dialect
	width int // in columns, of dialects that wrap; 0 is no limit

	out     strings.Builder
	units   int  // length of the visible text in UTF-16 units, counted by dialects that need it
	visible bool // something but white space was written

	gap    int         // line breaks owed before the next thing that is written
	marked bool        // a list marker was written: its item's first block follows on its line
	indent string      // what begins each line, inside lists and quotations
	depth  int         // of the list that is written
	open   [styles]int // how often each style applies

	*lazy // set in dialects whose marks are written only around text
}

// blocks renders the children of n, which are blocks. They keep their distance in the
// source: one line break or a blank line.
func (r *renderer) blocks(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		r.separate(c)
		r.block(c)
	}
}

func (r *renderer) separate(n ast.Node) {
	switch {
	case r.marked:
		r.marked = false
	case n.HasBlankPreviousLines(), n.Kind() == extast.KindTable: // a table forgets its blank line
		r.gap = 2
	default:
		r.gap = max(r.gap, 1)
	}
}

func (r *renderer) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		r.heading(n)
	case *ast.ThematicBreak:
		r.flow(func(r *renderer) { r.text("———") })
	case *ast.CodeBlock:
		r.code("", n.Lines().Value(r.src))
	case *ast.FencedCodeBlock:
		r.code(string(n.Language(r.src)), n.Lines().Value(r.src))
	case *ast.HTMLBlock:
		lines := n.Lines().Value(r.src)
		if n.HasClosure() {
			lines = append(bytes.Clone(lines), n.ClosureLine.Value(r.src)...)
		}
		r.flow(func(r *renderer) { r.text(strings.TrimRight(string(lines), "\n")) })
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

// heading renders a heading by the dialect's own mark, or in bold.
func (r *renderer) heading(n *ast.Heading) {
	if n.Level > len(r.d.headings) || r.open[quoted] > 1 {
		r.flow(func(r *renderer) { r.wrap(bold, n) })
		return
	}
	if !strings.ContainsFunc(r.plainText(n), isVisible) {
		return
	}
	r.marker(r.d.headings[n.Level-1])
	r.begin(heading)
	r.inlines(n)
	r.end(heading)
}

// quote renders a quotation. Where a dialect encloses it in marks, it has none inside another:
// that one, like any in other dialects, gets a mark on each line.
func (r *renderer) quote(n ast.Node) {
	if r.d.marks[quoted].open != "" && r.open[quoted] == 0 {
		r.begin(quoted)
		r.marked = true
		r.blocks(n)
		r.end(quoted)
		r.marked = false
		return
	}
	before := r.indent
	r.marker(r.d.quote)
	r.indentBy(r.d.quote)
	r.open[quoted]++
	r.marked = true
	r.blocks(n)
	r.marked = false
	r.open[quoted]--
	r.indent = before
}

func (r *renderer) list(n *ast.List) {
	number := n.Start
	r.marked = true // the first item stands where the list stands
	r.depth++
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		r.separate(item)
		marker := r.d.bullets[min(r.depth, len(r.d.bullets))-1]
		if n.IsOrdered() {
			marker = strconv.Itoa(number) + r.d.number
			number++
		}
		r.marker(marker)
		before := r.indent
		r.indentBy(strings.Repeat(" ", utf8.RuneCountInString(marker)))
		r.marked = true
		r.blocks(item)
		r.marked = false
		r.indent = before
	}
	r.depth--
}

// code renders a code block in the given language, or in none.
func (r *renderer) code(language string, lines []byte) {
	code := strings.TrimSuffix(string(lines), "\n")
	language = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("+-#._", c) {
			return c
		}
		return -1
	}, language)
	r.pre(language, code)
}

// pre renders text whose columns and line breaks matter.
func (r *renderer) pre(language, s string) {
	if s == "" || r.lazy != nil && !strings.ContainsFunc(s, isVisible) {
		return
	}
	r.d.pre(r, language, s)
}

func (r *renderer) inlines(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok && r.lazy != nil {
			c = r.run(t)
			continue
		}
		r.inline(c)
	}
}

// run renders the texts that begin with t, as one: what is markup may be spread over them. It
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
	r.follows = t.NextSibling() != nil
	r.text(b.String())
	r.follows = false
	return t
}

func (r *renderer) inline(n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		r.text(unescape(string(n.Segment.Value(r.src))))
		if n.SoftLineBreak() || n.HardLineBreak() {
			r.text("\n")
		}
	case *ast.String:
		r.text(string(n.Value))
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
		r.d.link(r, n, r.target(n.Destination), "")
	case *ast.Image:
		r.d.link(r, n, r.target(n.Destination), "image")
	case *ast.AutoLink:
		r.d.bareLink(r, n)
	case *ast.RawHTML:
		r.rawHTML(string(n.Segments.Value(r.src)))
	default:
		r.inlines(n)
	}
}

// codeSpan renders code within a line. In links it is text, because Telegram has none there.
func (r *renderer) codeSpan(n ast.Node) {
	var code strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			code.Write(t.Segment.Value(r.src))
		}
	}
	s := strings.ReplaceAll(code.String(), "\n", " ")
	if r.open[link] > 0 {
		r.text(s)
		return
	}
	r.d.code(r, s)
}

// rawHTML shows a tag as it is written, except for the one that models use within tables.
func (r *renderer) rawHTML(tag string) {
	switch strings.ToLower(strings.ReplaceAll(tag, " ", "")) {
	case "<br>", "<br/>":
		tag = "\n"
	}
	r.text(tag)
}

// wrap renders the children of n in a style, unless it applies already or can't be written here.
func (r *renderer) wrap(s style, n ast.Node) {
	fits := r.d.fits == nil || r.d.fits(r, s, n)
	if r.open[s] > 0 || !fits {
		mark := ""
		if !fits && r.d.literal != nil {
			mark = r.d.literal(r, n)
		}
		r.text(mark)
		r.inlines(n)
		r.text(mark)
		return
	}
	r.begin(s)
	r.inlines(n)
	r.end(s)
}

// begin and end enclose what a style applies to.
func (r *renderer) begin(s style) {
	r.open[s]++
	if r.lazy == nil {
		r.breakLines()
		r.out.WriteString(r.d.marks[s].open)
	}
}

func (r *renderer) end(s style) {
	r.open[s]--
	if r.lazy == nil {
		r.out.WriteString(r.d.marks[s].close)
	}
}

// breakLines writes the line breaks that are owed; at the beginning of the text none are.
func (r *renderer) breakLines() {
	if r.out.Len() == 0 {
		r.gap = 0
	}
	if r.gap == 0 {
		return
	}
	if r.lazy != nil {
		r.endLine()
		return
	}
	blank := strings.TrimRight(r.indent, " ")
	for ; r.gap > 1; r.gap-- {
		r.put("\n" + blank)
	}
	r.gap = 0
	r.put("\n" + r.indent)
}

// text writes visible text, each of its lines indented.
func (r *renderer) text(s string) {
	if r.lazy != nil && (r.open[link] > 0 || r.open[heading] > 0) {
		s = strings.ReplaceAll(s, "\n", " ") // there are no lines in them
	}
	for {
		line, rest, more := strings.Cut(s, "\n")
		if line != "" {
			r.breakLines()
			r.put(line)
		}
		if !more {
			return
		}
		r.gap++
		s = rest
	}
}

// marker writes what begins a line by the dialect's grammar.
func (r *renderer) marker(s string) {
	if r.lazy == nil {
		r.text(s)
		return
	}
	if r.d.wraps {
		r.room(true) // or another line, for the markers of many lists may share one
	}
	r.breakLines()
	r.out.WriteString(s)
	r.fresh, r.bulleted = true, s != r.d.quote
}

// put writes visible text of one line.
func (r *renderer) put(s string) {
	r.visible = r.visible || strings.ContainsFunc(s, isVisible)
	if r.lazy == nil {
		r.d.escape(r, s)
		return
	}
	r.putLazily(s)
}

// isVisible reports whether c shows by itself: not a blank, not a control or format character such
// as U+200B and U+FEFF, and not a mark, which shows on another character only.
func isVisible(c rune) bool {
	return !unicode.IsSpace(c) && !unicode.IsMark(c) && unicode.IsGraphic(c)
}

// unescape resolves backslash escapes and character references, each in one go: what
// comes out of one is not looked at again.
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

// referencePattern is what a character reference looks like in CommonMark: up to seven decimal
// digits, up to six hexadecimal ones, or a name, which may not exist.
var referencePattern = regexp.MustCompile(
	`^&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31});`)

// reference returns how many bytes the character reference has with which s begins, 0 if it does
// not begin with one.
func reference(s string) int {
	found := referencePattern.FindString(s)
	// Of a name that is known only without the ";", such as "not" in "&notit;", the rest is left.
	if s := html.UnescapeString(found); len(s) > 1 && strings.HasSuffix(s, ";") {
		return 0
	}
	return len(found)
}
