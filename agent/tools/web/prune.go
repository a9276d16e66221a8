package web

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Limits of a pruned page.
const (
	maxNodes   = 100_000
	maxText    = 2 << 20 // bytes
	maxDepth   = 100     // of elements; deeper ones are replaced by their children
	maxNested  = 10      // of lists and quotations, which indent all of their lines
	maxCells   = 20_000  // of a table, if all rows are as wide as the widest
	maxSpan    = 20      // columns or rows that a cell spans
	maxAddress = 2000    // bytes of a link
)

// A pruner removes the parts of a page that nobody reads: scripts, controls, comments, and hidden
// elements.
type pruner struct {
	url   *url.URL
	base  *url.URL // base URL of links
	title string
	next  string // URL to which the page sends browsers, or ""
	nodes int    // number of nodes that are left
	text  int    // bytes of text that are left, without white space
	cut   bool   // something was removed because of a limit
}

// redirection matches what a page says instead of a redirect, such as "0; url=/new".
var redirection = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^\s*[0-9.]+[;,\s]\s*(?:url\s*=\s*)?["']?([^"'\s]+)`)
})

// prune prunes the whole document.
func (p *pruner) prune(doc *html.Node) {
	// The base is needed before the first link is resolved.
	refresh := ""
	for n := range doc.Descendants() {
		switch {
		case n.DataAtom == atom.Base && attr(n, "href") != "":
			if u, err := p.base.Parse(attr(n, "href")); err == nil {
				p.base = u
			}
		case n.DataAtom == atom.Title && p.title == "" && n.Namespace == "":
			p.title = outerText(n)
		case n.DataAtom == atom.Meta && strings.EqualFold(attr(n, "http-equiv"), "refresh"):
			refresh = attr(n, "content")
		}
	}
	// Some pages only load themselves again.
	if m := redirection().FindStringSubmatch(refresh); m != nil {
		if p.next = p.link(m[1]); p.next == p.url.String() {
			p.next = ""
		}
	}
	p.children(doc, 0, 0)
}

// children prunes the children of n. depth is the nesting depth of elements, and nested that of
// lists and quotations.
func (p *pruner) children(n *html.Node, depth, nested int) {
	for c := n.FirstChild; c != nil; {
		// c may leave the tree below.
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
			// The Markdown of a table fills up all rows to the width of the widest, so a few bytes
			// of a page could become a huge table.
			if c.DataAtom == atom.Table && gridSize(c) > maxCells {
				flatten(c)
			}
			// The children of c are pruned already and move up as they are.
			if depth >= maxDepth {
				lift(n, c)
			}
		}
		c = next
	}
}

// indents returns 1 for a list or quotation, and otherwise 0. It converts one that is nested too
// deeply to a plain block.
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

// keep reports whether a node stays in the page, and counts its text.
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

// dropped are the elements without text for a reader, or with text only for one who can click.
var dropped = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Template: true, atom.Noscript: true,
	atom.Iframe: true, atom.Frame: true, atom.Frameset: true, atom.Noframes: true,
	atom.Object: true, atom.Embed: true, atom.Applet: true, atom.Svg: true, atom.Canvas: true,
	atom.Audio: true, atom.Video: true, atom.Map: true, atom.Input: true, atom.Select: true,
	atom.Textarea: true, atom.Button: true, atom.Datalist: true, atom.Link: true,
}

// unseen matches style declarations, without white space, that hide an element.
var unseen = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|;)(display:none|visibility:(hidden|collapse)|` +
		`content-visibility:hidden|opacity:(0|0?\.0+|0%)|font-size:[0.]+(p[xt]|r?em|%|v[wh])?|` +
		`(left|top|right|bottom|text-indent|margin-left|margin-top):-\d{3,}(\.\d+)?[a-z]*|` +
		`clip:rect\([01.,pxauto]*\)|clip-path:inset\((50|100)%\)|transform:scale\(0\)|` +
		`color:transparent)(!important)?(;|$)`)
})

var cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)

// unseenClasses are class names that conventionally hide an element from sight.
var unseenClasses = map[string]bool{
	"sr-only": true, "visually-hidden": true, "visuallyhidden": true, "screen-reader-text": true,
	"d-none": true,
}

// hidden reports whether an element is invisible on the page.
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
			if unseen().MatchString(strings.Join(strings.Fields(style), "")) {
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
	return n.DataAtom == atom.Dialog &&
		!slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "open" })
}

// attributes makes links absolute, removes links that lead nowhere, and limits spans.
func (p *pruner) attributes(n *html.Node) {
	kept := n.Attr[:0]
	for _, a := range n.Attr {
		switch {
		case a.Key == "href" && n.DataAtom == atom.A, a.Key == "src" && n.DataAtom == atom.Img:
			if a.Val = p.link(a.Val); a.Val == "" {
				continue
			}
		case a.Key == "colspan" || a.Key == "rowspan":
			// Without the attribute a cell spans one row and one column.
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
		rename(n, atom.Span) // an empty span with only the alternative text
		if alt := strings.TrimSpace(attr(n, "alt")); alt != "" {
			n.AppendChild(&html.Node{Type: html.TextNode, Data: alt})
		}
	}
}

// link returns the absolute URL of a link, or "" if the link can't be followed.
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

// lift replaces an element by its children.
func lift(parent, n *html.Node) {
	for c := n.FirstChild; c != nil; c = n.FirstChild {
		n.RemoveChild(c)
		parent.InsertBefore(c, n)
	}
	parent.RemoveChild(n)
}

// gridSize returns the number of cells of a table if all rows were as wide as the widest.
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

// flatten converts a table to plain blocks.
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

// attr returns the value of an element's attribute, or "".
func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}
