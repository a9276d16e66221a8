package markup

import (
	"cmp"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/util"
)

// A style is what applies to a stretch of text.
type style int

const (
	bold style = iota
	italic
	strike
	hidden
	link    // inside a link's label
	masked  // the same where the whole link has marks
	quoted  // inside a quotation
	heading // inside a heading that has a mark of its own
	styles  // how many there are
)

// A mark is how a dialect begins and ends a style.
type mark struct{ open, close string }

// A dialect is how one platform writes each construct. Nothing in it changes.
type dialect struct {
	marks    [styles]mark
	headings []string // what begins a heading, by level; deeper ones are bold
	bullets  []string // what begins an item, by depth; the last is for all that are deeper
	number   string   // what follows the number of an item
	quote    string   // what begins each line of a quotation that no marks enclose

	// lazy says that marks are only written around text, so never around nothing, around blanks or
	// over the end of a line: a grammar of marks in pairs needs that, one of tags does not.
	lazy  bool
	wraps bool // lines are made to fit a width; needs lazy
	tight bool // no blank lines in a quotation

	// plain renders what this dialect has no marks in, such as the cells of a table; nil in the
	// plain dialect itself.
	plain *dialect
	// escape writes visible text of one line so that it is not markup.
	escape func(r *renderer, s string)
	// between returns what must stand between what is written and next, a mark that opens or, after
	// one that closed, text; nil if nothing ever must.
	between func(r *renderer, next string) string
	// pre writes a block of code, in a language unless that is empty.
	pre func(r *renderer, language, s string)
	// code writes code within a line.
	code func(r *renderer, s string)
	// link writes the link or image n. Where it shows nothing, instead does.
	link func(r *renderer, n ast.Node, t target, instead string)
	// bareLink writes an address that stands for itself.
	bareLink func(r *renderer, n *ast.AutoLink)
	// fits reports whether the style can be written around n where it stands; nil if it always can.
	fits func(r *renderer, s style, n ast.Node) bool
	// literal returns what stands on both sides of n where its style does not fit; nil is nothing.
	literal func(r *renderer, n ast.Node) string
}

// A target is where a link leads.
type target struct {
	address  string
	web      bool // http or https
	harmless bool // worth showing
}

func (r *renderer) target(destination []byte) target {
	address := string(util.URLEscape(destination, true))
	scheme, _, hasScheme := strings.Cut(strings.ToLower(address), ":")
	web := hasScheme && (scheme == "http" || scheme == "https")
	return target{address, web, web || scheme == "mailto" || scheme == "tel" || !hasScheme}
}

// linkAsText writes a link's label and then its address, if that is harmless and adds anything.
func linkAsText(r *renderer, n ast.Node, t target, instead string) {
	nested := r.open[link] > 0 // an image in a link: the link's address counts
	shown := r.label(n, t, instead)
	if t.harmless && t.address != "" && shown != t.address && !nested {
		r.text(" (" + t.address + ")")
	}
}

// label writes the children of n or, if they show nothing, what stands for them, and returns
// what that is as plain text.
func (r *renderer) label(n ast.Node, t target, instead string) string {
	r.open[link]++
	defer func() { r.open[link]-- }()
	if shown := r.plainText(n); shown != "" {
		r.inlines(n)
		return shown
	}
	shown := cmp.Or(instead, t.address)
	r.text(shown)
	return shown
}

// plainText returns the children of n, which are inlines, as plain text.
func (r *renderer) plainText(n ast.Node) string {
	p := &renderer{src: r.src, d: cmp.Or(r.d.plain, r.d)}
	p.inlines(n)
	return p.out.String()
}

// newRenderer returns a renderer of src in d.
func newRenderer(src []byte, d *dialect) *renderer {
	r := &renderer{src: src, d: d}
	if d.lazy {
		r.lazy = &lazy{fresh: true}
	}
	return r
}
