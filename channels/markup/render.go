package markup

import (
	"bytes"
	"html"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/util"
)

// A renderer writes a Markdown tree as Telegram's HTML or as plain text.
type renderer struct {
	src  []byte
	html bool

	out     strings.Builder
	units   int  // length of the visible text in UTF-16 units
	visible bool // something but white space was written

	gap    int            // line breaks owed before the next thing that is written
	marked bool           // a list marker was written: its item's first block follows on its line
	indent string         // what begins each line, inside lists and plain quotations
	open   map[string]int // tags that are open, by name
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
		r.wrap("b", n)
	case *ast.ThematicBreak:
		r.text("———")
	case *ast.CodeBlock:
		r.code("", n.Lines().Value(r.src))
	case *ast.FencedCodeBlock:
		r.code(string(n.Language(r.src)), n.Lines().Value(r.src))
	case *ast.HTMLBlock:
		lines := n.Lines().Value(r.src)
		if n.HasClosure() {
			lines = append(bytes.Clone(lines), n.ClosureLine.Value(r.src)...)
		}
		r.text(strings.TrimRight(string(lines), "\n"))
	case *ast.Blockquote:
		r.quote(n)
	case *ast.List:
		r.list(n)
	case *extast.Table:
		r.pre(table(n, r.src))
	default:
		if c := n.FirstChild(); c != nil && c.Type() == ast.TypeBlock {
			r.blocks(n)
		} else {
			r.inlines(n) // Paragraph, TextBlock
		}
	}
}

// quote renders a quotation. Telegram has none inside another: that one, like any in
// plain text, gets a mark on each line.
func (r *renderer) quote(n ast.Node) {
	if r.html && r.open["blockquote"] == 0 {
		r.begin("blockquote", "")
		r.marked = true
		r.blocks(n)
		r.end("blockquote")
		r.marked = false
		return
	}
	before := r.indent
	r.text("> ")
	r.indent += "> "
	r.marked = true
	r.blocks(n)
	r.marked = false
	r.indent = before
}

func (r *renderer) list(n *ast.List) {
	number := n.Start
	r.marked = true // the first item stands where the list stands
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		r.separate(item)
		marker := "• "
		if n.IsOrdered() {
			marker = strconv.Itoa(number) + ". "
			number++
		}
		r.text(marker)
		before := r.indent
		r.indent += strings.Repeat(" ", utf8.RuneCountInString(marker))
		r.marked = true
		r.blocks(item)
		r.marked = false
		r.indent = before
	}
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
	if language == "" || code == "" {
		r.pre(code)
		return
	}
	r.begin("pre", "")
	r.begin("code", ` class="language-`+language+`"`)
	r.verbatim(code)
	r.end("code")
	r.end("pre")
}

// pre renders text whose columns and line breaks matter.
func (r *renderer) pre(s string) {
	if s == "" {
		return
	}
	r.begin("pre", "")
	r.verbatim(s)
	r.end("pre")
}

// verbatim writes s without indenting its lines where the block itself shows what it is.
func (r *renderer) verbatim(s string) {
	before := r.indent
	if r.html {
		r.indent = ""
	}
	r.text(s)
	r.indent = before
}

func (r *renderer) inlines(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		r.inline(c)
	}
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
			r.wrap("i", n)
		} else {
			r.wrap("b", n)
		}
	case *extast.Strikethrough:
		r.wrap("s", n)
	case *spoiler:
		r.wrap("tg-spoiler", n)
	case *ast.Link:
		r.link(n, n.Destination, "")
	case *ast.Image:
		r.link(n, n.Destination, "image")
	case *ast.AutoLink:
		r.text(string(n.Label(r.src))) // Telegram makes it a link by itself
	case *ast.RawHTML:
		r.rawHTML(string(n.Segments.Value(r.src)))
	default:
		r.inlines(n)
	}
}

func (r *renderer) codeSpan(n ast.Node) {
	var code strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			code.Write(t.Segment.Value(r.src))
		}
	}
	if r.open["a"] > 0 { // Telegram has no code in a link
		r.text(strings.ReplaceAll(code.String(), "\n", " "))
		return
	}
	r.begin("code", "")
	r.text(strings.ReplaceAll(code.String(), "\n", " "))
	r.end("code")
}

// link renders a link or an image. An address that Telegram does not take, or
// that could do harm, is no link: only its label is shown, with the address if it is harmless.
func (r *renderer) link(n ast.Node, destination []byte, label string) {
	address := string(util.URLEscape(destination, true))
	scheme, _, hasScheme := strings.Cut(strings.ToLower(address), ":")
	web := hasScheme && (scheme == "http" || scheme == "https")
	harmless := web || scheme == "mailto" || scheme == "tel" || !strings.Contains(address, ":")
	nested := r.open["a"] > 0 // an image in a link: the link's address counts
	if r.html && web && !nested {
		r.begin("a", ` href="`+html.EscapeString(address)+`"`)
		r.label(n, label, address)
		r.end("a")
		return
	}
	r.count("a", 1)
	shown := r.label(n, label, address)
	r.count("a", -1)
	if harmless && address != "" && shown != address && !nested {
		r.text(" (" + address + ")")
	}
}

// label renders the children of n or, if they show nothing, what stands for them, and
// returns what was written.
func (r *renderer) label(n ast.Node, instead, address string) string {
	start, units := r.out.Len(), r.units
	r.inlines(n)
	if r.units == units {
		if instead == "" {
			instead = address
		}
		r.text(instead)
	}
	return r.out.String()[start:]
}

// rawHTML shows a tag as it is written, but for the one that models use within tables.
func (r *renderer) rawHTML(tag string) {
	switch strings.ToLower(strings.ReplaceAll(tag, " ", "")) {
	case "<br>", "<br/>":
		tag = "\n"
	}
	r.text(tag)
}

// wrap renders the children of n inside a tag, unless they are inside such a tag already.
func (r *renderer) wrap(tag string, n ast.Node) {
	if r.open[tag] > 0 {
		r.inlines(n)
		return
	}
	r.begin(tag, "")
	r.inlines(n)
	r.end(tag)
}

// begin opens a tag and end closes it. In plain text both only keep count.
func (r *renderer) begin(tag, attributes string) {
	r.breakLines()
	r.count(tag, 1)
	if r.html {
		r.out.WriteString("<" + tag + attributes + ">")
	}
}

func (r *renderer) end(tag string) {
	r.count(tag, -1)
	if r.html {
		r.out.WriteString("</" + tag + ">")
	}
}

func (r *renderer) count(tag string, n int) {
	if r.open == nil {
		r.open = make(map[string]int)
	}
	r.open[tag] += n
}

// breakLines writes the line breaks that are owed; at the beginning of the text none are.
func (r *renderer) breakLines() {
	if r.out.Len() == 0 {
		r.gap = 0
	}
	if r.gap == 0 {
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

// put writes visible text, escaped and counted. Control characters have no place in a message.
func (r *renderer) put(s string) {
	r.visible = r.visible || strings.ContainsFunc(s, isVisible)
	start := 0
	for i := range len(s) {
		c := s[i]
		r.units += unitsOf(c)
		escaped := ""
		switch {
		case c == '&' && r.html:
			escaped = "&amp;"
		case c == '<' && r.html:
			escaped = "&lt;"
		case c == '>' && r.html:
			escaped = "&gt;"
		case c < ' ' && c != '\n' && c != '\t' || c == 0x7f:
			r.units-- // dropped
		default:
			continue
		}
		r.out.WriteString(s[start:i])
		r.out.WriteString(escaped)
		start = i + 1
	}
	r.out.WriteString(s[start:])
}

func isVisible(c rune) bool { return !unicode.IsSpace(c) && !unicode.IsControl(c) }

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
			end := strings.IndexByte(s[i:min(i+40, len(s))], ';')
			if end < 0 {
				b.WriteByte(c)
				continue
			}
			b.WriteString(html.UnescapeString(s[i : i+end+1]))
			i += end
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
