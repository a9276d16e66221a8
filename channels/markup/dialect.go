package markup

import (
	"cmp"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/util"
)

// A style is a property of a stretch of text.
type style int

const (
	bold style = iota
	italic
	strike
	hidden
	link    // inside a link's label
	masked  // inside the label of a link that has marks as a whole
	quoted  // inside a quotation
	heading // inside a heading that has its own mark
	styles  // number of styles
)

// A mark is the beginning and the end of a style in a dialect.
type mark struct{ open, close string }

// A dialect says how one platform writes each construct. It is immutable.
type dialect struct {
	marks    [styles]mark
	headings []string // prefix of a heading, by level; deeper ones are bold
	bullets  []string // prefix of an item, by depth; the last one also for deeper items
	number   string   // suffix of an item's number
	quote    string   // prefix of each line of a quotation without enclosing marks

	// lazy says that marks are written only around text: never around nothing, around blanks or
	// over the end of a line. Dialects with paired marks need that; dialects with tags don't.
	lazy  bool
	wraps bool // wrap lines to a width; needs lazy
	tight bool // no blank lines in quotations

	// plain renders constructs for which this dialect has no marks, such as table cells; nil in the
	// plain dialect itself.
	plain *dialect
	// escape writes visible text of one line so that nothing in it is markup.
	escape func(w *writer, s string)
	// between returns what must separate the written text from next: an opening mark or, after a
	// closing mark, text. nil means that nothing is ever needed.
	between func(w *writer, next string) string
	// pre writes a code block. language may be "".
	pre func(w *writer, language, s string)
	// code writes inline code.
	code func(w *writer, s string)
	// link writes the link or image n. If it shows nothing, it writes instead.
	link func(r *renderer, n ast.Node, t target, instead string)
	// bareLink writes an address without a label.
	bareLink func(r *renderer, n *ast.AutoLink)
	// fits reports whether the style can be written around n in this place; nil: always.
	fits func(r *renderer, s style, n ast.Node) bool
	// literal returns the text on both sides of n if its style does not fit; nil: none.
	literal func(n ast.Node) string
}

// A target is the destination of a link.
type target struct {
	address  string // escaped
	web      bool   // http or https
	harmless bool   // worth showing
}

// targetOf returns the target of a link. The address is escaped as a URL, so it contains no blanks.
func targetOf(destination []byte) target {
	address := string(util.URLEscape(destination, true))
	scheme, _, hasScheme := strings.Cut(strings.ToLower(address), ":")
	web := hasScheme && (scheme == "http" || scheme == "https")
	return target{address, web, web || scheme == "mailto" || scheme == "tel" || !hasScheme}
}

// linkAsText writes a link's label, and its address if that is harmless and not redundant.
func linkAsText(r *renderer, n ast.Node, t target, instead string) {
	nested := r.w.active[link] > 0 // an image in a link: the link's address counts
	shown := r.label(n, t, instead)
	if t.harmless && t.address != "" && shown != t.address && !nested {
		r.w.text(" (" + t.address + ")")
	}
}

// label writes the children of n or, if they show nothing, a replacement. It returns the result as
// plain text.
func (r *renderer) label(n ast.Node, t target, instead string) string {
	r.w.active[link]++
	defer func() { r.w.active[link]-- }()
	if shown := r.plainText(n); shown != "" {
		r.inlines(n)
		return shown
	}
	shown := cmp.Or(instead, t.address)
	r.w.text(shown)
	return shown
}

// plainText returns the inline children of n as plain text.
func (r *renderer) plainText(n ast.Node) string {
	p := newRenderer(r.src, cmp.Or(r.d.plain, r.d))
	p.inlines(n)
	return p.w.out.String()
}
