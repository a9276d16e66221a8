package document

import (
	"errors"
	"strings"

	"golang.org/x/net/html"
)

// html reads an HTML file.
func (f *file) html() error {
	page, ok := decode(f.raw)
	if !ok {
		return ErrUnsupported
	}
	return f.page(page)
}

// silent are the elements whose content is not visible. The content ends at the first end tag of
// the same name.
var silent = map[string]bool{
	"script": true, "style": true, "template": true, "noscript": true, "svg": true, "iframe": true,
}

// The blocks start on new lines; spaced ones have an empty line around them.
var blocks = map[string]bool{
	"div": true, "li": true, "tr": true, "br": true, "dt": true, "dd": true, "section": true,
	"article": true, "header": true, "footer": true, "nav": true, "option": true, "form": true,
	"figcaption": true, "caption": true, "main": true, "aside": true, "address": true,
}

var spaced = map[string]bool{
	"p": true, "h1": true, "h2": true, "h3": true, "h4": true, "h5": true, "h6": true,
	"ul": true, "ol": true, "table": true, "pre": true, "blockquote": true, "hr": true,
	"title": true, "body": true, "dl": true,
}

// A page is the state of reading HTML.
type page struct {
	*sink
	pre   int    // depth of preformatted elements
	href  string // target of the open link
	space bool   // white space to write before the next text
	cells int    // number of cells in the row so far
	fresh bool   // an item or a cell has no text yet
}

// page reads HTML token by token without building a tree. That is enough to get the text, and deep
// nesting takes no more memory.
func (f *file) page(src string) error {
	p := &page{sink: f.out}
	z := html.NewTokenizer(strings.NewReader(src))
	silentUntil := "" // the silent element that is open
	for n := 0; ; n++ {
		// Not for each token: a large page has millions of them.
		if n%1000 == 0 {
			if err := f.check(); err != nil {
				return err
			}
		}
		kind := z.Next()
		if kind == html.ErrorToken {
			return nil // the end; reading from memory has no other error
		}
		name, attributes := z.TagName()
		switch {
		case silentUntil != "":
			if kind == html.EndTagToken && string(name) == silentUntil {
				silentUntil = ""
			}
		case kind == html.TextToken:
			p.text(string(z.Text()))
		case kind == html.StartTagToken && silent[string(name)]:
			silentUntil = string(name)
		case kind == html.StartTagToken:
			p.open(string(name), z, attributes)
		case kind == html.EndTagToken:
			p.close(string(name))
		case kind == html.SelfClosingTagToken:
			z.NextIsNotRawText() // in XHTML, <title/> has no content
			p.open(string(name), z, attributes)
			p.close(string(name))
		}
	}
}

// separate begins a new line or paragraph before and after blocks.
func (p *page) separate(name string) {
	switch name {
	case "li", "td", "th", "tr":
		p.fresh = false
	}
	switch {
	case p.fresh: // the first block in an item or a cell is on its line
	case spaced[name]:
		p.paragraph()
		p.space = false
	case blocks[name]:
		p.line()
		p.space = false
	}
}

// open handles the start of an element. attributes reports whether the element has any; z reads
// them.
func (p *page) open(name string, z *html.Tokenizer, attributes bool) {
	p.separate(name)
	switch name {
	case "pre":
		p.pre++
	case "tr":
		p.cells = 0
	case "td", "th":
		if p.cells++; p.cells > 1 {
			p.space, p.breaks = false, 0
			p.write(" | ")
		}
		p.fresh = true
	case "li":
		p.write("- ")
		p.fresh = true
	case "h1", "h2", "h3", "h4", "h5", "h6":
		p.write(strings.Repeat("#", int(name[1]-'0')) + " ")
	case "a":
		p.href = ""
		for attributes {
			var key, value []byte
			if key, value, attributes = z.TagAttr(); string(key) == "href" {
				p.href = string(value)
			}
		}
	}
}

// close handles the end of an element. The target of a link follows its text. Relative targets lead
// nowhere from here.
func (p *page) close(name string) {
	p.separate(name)
	switch name {
	case "pre":
		p.pre = max(0, p.pre-1)
	case "a":
		href := p.href
		p.href = ""
		if strings.HasPrefix(href, "http") || strings.HasPrefix(href, "mailto:") {
			p.write(" (" + href + ")")
		}
	}
}

// text writes text and collapses white space, unless the text is preformatted.
func (p *page) text(s string) {
	words, fresh := strings.Fields(s), p.fresh
	p.fresh = fresh && len(words) == 0
	if p.pre > 0 {
		p.write(s)
		return
	}
	if len(words) == 0 {
		p.space = !fresh && (p.space || s != "")
		return
	}
	joined := strings.Join(words, " ")
	if !fresh && (p.space || strings.TrimLeft(s, " \t\r\n") != s) && p.breaks == 0 && p.begun {
		joined = " " + joined
	}
	p.space = strings.TrimRight(s, " \t\r\n") != s
	p.write(joined)
}

// errBroken reports a file that violates its format.
var errBroken = errors.New("the file is damaged")
