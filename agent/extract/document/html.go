package document

import (
	"errors"
	"html"
	"regexp"
	"strings"
)

// html reads an HTML file.
func (f *file) html() error {
	raw, err := f.whole()
	if err != nil {
		return err
	}
	page, ok := decode(raw)
	if !ok {
		return ErrUnsupported
	}
	return f.page(page)
}

var (
	tagName  = regexp.MustCompile(`^/?[a-zA-Z][a-zA-Z0-9:-]*`)
	hrefAttr = regexp.MustCompile(`(?i)\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))`)
)

// silent are the elements whose content is not visible.
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
}

// page reads HTML tag by tag without building a tree. That is enough to get the text, and deep
// nesting takes no more memory.
func (f *file) page(src string) error {
	p := &page{sink: f.out}
	for n := 0; src != ""; n++ {
		if n%1000 == 0 && f.late() != nil {
			return errTooLong
		}
		text, rest, tagged := strings.Cut(src, "<")
		if err := p.text(html.UnescapeString(text)); err != nil {
			return err
		}
		if !tagged {
			break
		}
		src = rest
		if after, ok := strings.CutPrefix(src, "!--"); ok {
			_, src, _ = strings.Cut(after, "-->")
			continue
		}
		name := strings.ToLower(tagName.FindString(src))
		if name == "" && !strings.HasPrefix(src, "!") && !strings.HasPrefix(src, "?") {
			if err := p.text("<"); err != nil {
				return err
			}
			continue
		}
		tag := src[:tagEnd(src)]
		src = strings.TrimPrefix(src[len(tag):], ">")
		if silent[name] && !strings.HasSuffix(tag, "/") {
			src = after(src, "</"+name)
			continue
		}
		if err := p.tag(name, tag); err != nil {
			return err
		}
	}
	return nil
}

// tagEnd returns the index of the > that ends a tag. It skips quoted strings.
func tagEnd(s string) int {
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return i
		}
	}
	if i := strings.IndexByte(s, '>'); i >= 0 {
		return i // the quotation mark is never closed
	}
	return len(s)
}

// after returns the text after the closing tag that begins with closing, in any letter case.
func after(s, closing string) string {
	for {
		i := strings.Index(s, "</")
		if i < 0 {
			return ""
		}
		s = s[i:]
		if len(s) >= len(closing) && strings.EqualFold(s[:len(closing)], closing) {
			_, rest, _ := strings.Cut(s, ">")
			return rest
		}
		s = s[2:]
	}
}

func (p *page) tag(name, tag string) error {
	kind := strings.TrimPrefix(name, "/")
	opens := kind == name
	switch {
	case spaced[kind]:
		p.paragraph()
		p.space = false
	case blocks[kind]:
		p.line()
		p.space = false
	}
	switch {
	case kind == "pre" && opens:
		p.pre++
	case kind == "pre":
		p.pre = max(0, p.pre-1)
	case kind == "tr":
		p.cells = 0
	case (kind == "td" || kind == "th") && opens:
		if p.cells++; p.cells > 1 {
			p.space = false
			return p.write(" | ")
		}
	case kind == "li" && opens:
		return p.write("- ")
	case len(kind) == 2 && kind[0] == 'h' && kind[1] >= '1' && kind[1] <= '6' && opens:
		return p.write(strings.Repeat("#", int(kind[1]-'0')) + " ")
	case kind == "a" && opens:
		p.href = ""
		if m := hrefAttr.FindStringSubmatch(tag); m != nil {
			p.href = html.UnescapeString(m[1] + m[2] + m[3])
		}
	case kind == "a" && p.href != "":
		href := p.href
		p.href = ""
		if strings.HasPrefix(href, "http") || strings.HasPrefix(href, "mailto:") {
			return p.write(" (" + href + ")")
		}
	}
	return nil
}

// text writes text and collapses white space, unless the text is preformatted.
func (p *page) text(s string) error {
	if p.pre > 0 {
		return p.write(s)
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		p.space = p.space || s != ""
		return nil
	}
	joined := strings.Join(words, " ")
	if (p.space || strings.TrimLeft(s, " \t\r\n") != s) && p.breaks == 0 && p.begun {
		joined = " " + joined
	}
	p.space = strings.TrimRight(s, " \t\r\n") != s
	return p.write(joined)
}

// errBroken reports a file that violates its format.
var errBroken = errors.New("the file is damaged")
