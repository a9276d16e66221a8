package web

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The bounds of a pruned page.
const (
	maxNodes   = 100_000
	maxText    = 2 << 20 // bytes
	maxDepth   = 100     // of elements; what is deeper is lifted
	maxNested  = 10      // of lists and quotations, which indent each line within them
	maxCells   = 20_000  // of a table, as a grid
	maxSpan    = 20      // columns or rows of a cell
	maxAddress = 2000    // bytes of a link
)

// A pruner takes from a page what is not read: scripts, controls, comments, and what is hidden.
type pruner struct {
	base  *url.URL // of links
	title string
	nodes int  // that are left
	text  int  // bytes that are left, white space left out
	cut   bool // something was left out because of a bound
}

func newPruner(at *url.URL) *pruner { return &pruner{base: at} }

// prune works on the whole document.
func (p *pruner) prune(doc *html.Node) {
	for n := range doc.Descendants() {
		switch {
		case n.DataAtom == atom.Base && attr(n, "href") != "":
			if u, err := p.base.Parse(attr(n, "href")); err == nil {
				p.base = u
			}
		case n.DataAtom == atom.Title && p.title == "" && n.Namespace == "":
			p.title = outerText(n)
		}
	}
	p.children(doc, 0, 0)
}

// children prunes what is below n, which is at a depth of elements, and of nested lists and
// quotations.
func (p *pruner) children(n *html.Node, depth, nested int) {
	for c := n.FirstChild; c != nil; {
		next := c.NextSibling
		if !p.keep(c) {
			n.RemoveChild(c)
			c = next
			continue
		}
		p.nodes++
		inner := nested
		if c.Type == html.ElementNode {
			p.attributes(c)
			inner += indents(c, nested)
			p.children(c, depth+1, inner)
			if c.DataAtom == atom.Table && gridSize(c) > maxCells {
				flatten(c)
			}
			if depth >= maxDepth {
				lift(n, c)
			}
		}
		c = next
	}
}

// indents returns 1 for a list or quotation. One that is nested too deeply becomes a plain block.
func indents(n *html.Node, nested int) int {
	switch n.DataAtom {
	case atom.Ul, atom.Ol, atom.Blockquote, atom.Menu, atom.Dl:
	default:
		return 0
	}
	if nested >= maxNested {
		rename(n, atom.Div)
		return 0
	}
	return 1
}

// keep reports whether a node is read, and counts its text.
func (p *pruner) keep(n *html.Node) bool {
	if p.nodes >= maxNodes {
		p.cut = true
		return false
	}
	switch n.Type {
	case html.TextNode:
		size := len(strings.TrimSpace(n.Data))
		if p.text+size > maxText {
			p.cut = true
			return false
		}
		p.text += size
		return true
	case html.ElementNode:
		return !dropped[n.DataAtom] && !hidden(n)
	case html.DoctypeNode:
		return true
	}
	return false
}

// dropped are the elements that say nothing to a reader, or only to one who could click.
var dropped = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Template: true, atom.Noscript: true,
	atom.Iframe: true, atom.Frame: true, atom.Frameset: true, atom.Noframes: true,
	atom.Object: true, atom.Embed: true, atom.Applet: true, atom.Svg: true, atom.Canvas: true,
	atom.Audio: true, atom.Video: true, atom.Map: true, atom.Input: true, atom.Select: true,
	atom.Textarea: true, atom.Button: true, atom.Datalist: true, atom.Link: true,
}

var (
	// unseen are declarations that hide an element, in a style without white space.
	unseen = regexp.MustCompile(`(^|;)(display:none|visibility:(hidden|collapse)|` +
		`content-visibility:hidden|opacity:(0|0?\.0+|0%)|font-size:[0.]+(p[xt]|r?em|%|v[wh])?|` +
		`(left|top|right|bottom|text-indent|margin-left|margin-top):-\d{3,}(\.\d+)?[a-z]*|` +
		`clip:rect\([01.,pxauto]*\)|clip-path:inset\((50|100)%\)|transform:scale\(0\)|` +
		`color:transparent)(!important)?(;|$)`)

	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
)

// unseenClasses hide an element from eyes by convention.
var unseenClasses = map[string]bool{
	"sr-only": true, "visually-hidden": true, "visuallyhidden": true, "screen-reader-text": true,
	"d-none": true,
}

// hidden reports whether nobody who looks at the page sees an element.
func hidden(n *html.Node) bool {
	for _, a := range n.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "aria-hidden":
			if strings.EqualFold(strings.TrimSpace(a.Val), "true") {
				return true
			}
		case "style":
			style := cssComment.ReplaceAllString(strings.ToLower(a.Val), "")
			if unseen.MatchString(strings.Join(strings.Fields(style), "")) {
				return true
			}
		case "class":
			for class := range strings.FieldsSeq(a.Val) {
				if unseenClasses[class] {
					return true
				}
			}
		}
	}
	return n.DataAtom == atom.Dialog && !has(n, "open")
}

// attributes makes links absolute, removes those that lead nowhere, and bounds spans.
func (p *pruner) attributes(n *html.Node) {
	kept := n.Attr[:0]
	for _, a := range n.Attr {
		switch {
		case a.Key == "href" && n.DataAtom == atom.A, a.Key == "src" && n.DataAtom == atom.Img:
			if a.Val = p.link(a.Val); a.Val == "" {
				continue
			}
		case a.Key == "colspan" || a.Key == "rowspan":
			if v, err := strconv.Atoi(strings.TrimSpace(a.Val)); err != nil || v < 1 || v > maxSpan {
				continue
			}
		case a.Key == "srcset" || strings.HasPrefix(a.Key, "on") || a.Key == "style":
			continue
		}
		kept = append(kept, a)
	}
	n.Attr = kept
	if n.DataAtom == atom.Img && attr(n, "src") == "" {
		rename(n, atom.Span) // an empty one, except for its alternative text
		if alt := strings.TrimSpace(attr(n, "alt")); alt != "" {
			n.AppendChild(&html.Node{Type: html.TextNode, Data: alt})
		}
	}
}

// link returns the absolute address of a link, or "" if it can't be followed.
func (p *pruner) link(ref string) string {
	ref = strings.TrimSpace(ref)
	if strings.HasPrefix(ref, "#") || len(ref) > maxAddress {
		return ""
	}
	u, err := p.base.Parse(ref)
	if err != nil {
		return ""
	}
	switch u.Scheme {
	case "http", "https", "mailto", "tel":
		return visible(u.String())
	}
	return ""
}

// lift puts the children of an element in its place.
func lift(parent, n *html.Node) {
	for c := n.FirstChild; c != nil; c = n.FirstChild {
		n.RemoveChild(c)
		parent.InsertBefore(c, n)
	}
	parent.RemoveChild(n)
}

// gridSize returns how many cells a table has when all rows are as wide as the widest.
func gridSize(t *html.Node) int {
	rows, widest, width := 0, 0, 0
	for n := range t.Descendants() {
		switch n.DataAtom {
		case atom.Tr:
			rows++
			width = 0
		case atom.Td, atom.Th:
			span, _ := strconv.Atoi(attr(n, "colspan"))
			width += max(span, 1)
			widest = max(widest, width)
		}
	}
	return rows * widest
}

// flatten turns a table into plain blocks.
func flatten(t *html.Node) {
	rename(t, atom.Div)
	for n := range t.Descendants() {
		switch n.DataAtom {
		case atom.Tr, atom.Td, atom.Th, atom.Tbody, atom.Thead, atom.Tfoot, atom.Caption, atom.Table:
			rename(n, atom.Div)
		}
	}
}

func rename(n *html.Node, to atom.Atom) { n.DataAtom, n.Data = to, to.String() }

// attr returns an attribute of an element, or "".
func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, key string) bool {
	for _, a := range n.Attr {
		if a.Key == key {
			return true
		}
	}
	return false
}
