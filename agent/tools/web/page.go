package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"time"

	readability "codeberg.org/readeck/go-readability/v2"
	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"

	"gateway/agent/extract/document"
)

// Limits of the conversion of a page.
const (
	maxTitle    = 300     // characters
	maxMarkdown = 8 << 20 // bytes
	maxArticle  = 10_000  // nodes that are searched for a readable part
	little      = 500     // bytes; a shorter readable part may be a wrong guess
	maxBuilding = 400_000 // nodes that the parser may create
	parseTime   = 3 * time.Second
	unhurried   = 64 << 10 // bytes that the parser reads without a time limit
)

// KindPage is the kind under which an [extract.Extractor] runs [Page].
const KindPage = "page"

// pageArgs go as JSON to the process that runs [Page].
type pageArgs struct {
	URL      string
	Declared string // Content-Type header
}

// Page converts a web page to Markdown. It returns the page's readable part, or the whole page if
// there is none, and the title.
func Page(args json.RawMessage, body []byte) (text []byte, title string, err error) {
	var a pageArgs
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, "", err
	}
	at, err := url.Parse(a.URL)
	if err != nil {
		return nil, "", errors.New("its address is not valid")
	}
	title, md, err := markdown(document.Decode(body, a.Declared), at)
	return []byte(strings.ToValidUTF8(md[:min(len(md), maxMarkdown)], "")), title, err
}

// markdown returns the title of a page and its readable part as Markdown, or the whole page as
// Markdown if there is no readable part.
func markdown(source string, at *url.URL) (title, text string, err error) {
	doc, whole, err := parse(source)
	if err != nil {
		return "", "", errors.New("it is nested too deeply")
	}
	pr := &pruner{url: at, base: at}
	pr.prune(doc)
	title = pr.title
	content := doc
	if pr.nodes <= maxArticle {
		if article, name := readable(doc, at, pr.text); article != nil {
			content, title = article, name
		}
	}
	out, err := newConverter().ConvertNode(content)
	if err != nil {
		return "", "", errors.New("its structure is too odd")
	}
	text = string(out)
	if pr.next != "" {
		text += "\n\n[the page sends browsers on to " + pr.next + "]"
	}
	if pr.cut || !whole {
		text += "\n\n[the page is larger than what can be converted; the rest was left out]"
	}
	return oneLine(title, maxTitle), text, nil
}

// parse returns the node tree of a page. whole is false if the page was cut. It fails if elements
// are nested 512 deep.
func parse(source string) (doc *html.Node, whole bool, err error) {
	trimmed := trim(source)
	r := &limited{r: strings.NewReader(trimmed), until: time.Now().Add(parseTime)}
	doc, err = html.Parse(r)
	return doc, !r.late && len(trimmed) == len(source), err
}

// readable returns the readable part of a page and its title. all is the number of bytes of text in
// the page. It returns nil if there is no readable part, or hardly any.
func readable(doc *html.Node, at *url.URL, all int) (*html.Node, string) {
	p := readability.NewParser()
	p.KeepClasses = true // they name the language of code
	p.DisableJSONLD = true
	article, err := p.ParseDocument(doc, at)
	if err != nil || article.Node == nil {
		return nil, ""
	}
	if n := textLen(article.Node); n == 0 || n < little && n < all/2 {
		return nil, ""
	}
	return article.Node, article.Title()
}

// textLen returns the number of bytes of text in a node, without white space. It is the measure for
// how much of a page its readable part has.
func textLen(n *html.Node) int {
	size := 0
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			size += len(strings.TrimSpace(d.Data))
		}
	}
	return size
}

// newConverter returns a converter for one page, because a converter has state that pages can't
// share. It does not escape Markdown characters: a model reads "a_b" better than "a\_b", and the
// time for escaping grows with the square of their number.
func newConverter() *converter.Converter {
	return converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled),
		converter.WithPlugins(
			base.NewBasePlugin(),
			commonmark.NewCommonmarkPlugin(
				commonmark.WithLinkEmptyHrefBehavior(commonmark.LinkBehaviorSkip),
				commonmark.WithLinkEmptyContentBehavior(commonmark.LinkBehaviorSkip),
			),
			strikethrough.NewStrikethroughPlugin(),
			table.NewTablePlugin(
				table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal),
				table.WithSkipEmptyRows(true),
				table.WithHeaderPromotion(true),
				table.WithNewlineBehavior(table.NewlineBehaviorPreserve),
			),
		))
}

// A limited reader ends when its time is over. For some pages the parser's time grows with the
// square of the length.
type limited struct {
	r     io.Reader
	until time.Time
	read  int
	late  bool // it has reached the time limit
}

func (l *limited) Read(p []byte) (int, error) {
	// There is no limit for a short page. If that takes long, the machine is just busy.
	if l.read > unhurried && time.Now().After(l.until) {
		l.late = true
		return 0, io.EOF
	}
	n, err := l.r.Read(p)
	l.read += n
	return n, err
}

// formatting are the elements that the parser reopens in each paragraph until they are closed
// (HTML, 13.2.4.3). With them, a few bytes of a page can create hundreds of nodes.
var formatting = map[string]bool{
	"a": true, "b": true, "big": true, "code": true, "em": true, "font": true, "i": true,
	"nobr": true, "s": true, "small": true, "strike": true, "strong": true, "tt": true, "u": true,
}

// trim returns the beginning of a page for which the parser creates a bounded number of nodes. It
// does not shorten ordinary pages.
func trim(source string) string {
	z := html.NewTokenizer(strings.NewReader(source))
	open := make(map[string]int)
	opened, built, read := 0, 0, 0
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return source
		}
		size := len(z.Raw())
		name, _ := z.TagName()
		if formatting[string(name)] && kind == html.StartTagToken {
			open[string(name)]++
			opened++
		} else if kind == html.EndTagToken && open[string(name)] > 0 {
			open[string(name)]--
			opened--
		}
		// At worst the parser reopens all open formatting elements for each token.
		if built += 1 + opened; built > maxBuilding {
			return source[:read]
		}
		read += size
	}
}

// outerText returns the text of a node as one line.
func outerText(n *html.Node) string {
	var b bytes.Buffer
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}
