package web

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/net/html/charset"

	"gateway/agent/extract/document"
)

var update = flag.Bool("update", false, "write what the tests got into testdata")

func parseURL(tb testing.TB, raw string) *url.URL {
	tb.Helper()
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// TestGolden converts the pages in testdata. Each archive has the URL of a page, the page in a
// file named in.html or in.ENCODING.html, and the expected text.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			in := a.Files[1]
			body := in.Data
			parts := strings.Split(in.Name, ".")
			if len(parts) == 3 {
				enc, _ := charset.Lookup(parts[1])
				if body, err = enc.NewEncoder().Bytes(body); err != nil {
					t.Fatal(err)
				}
			}
			title, text, err := markdown(document.Decode(body, "text/html"),
				parseURL(t, string(a.Files[0].Data)))
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%s\n\n%s\n", title, visible(text))
			if *update {
				a.Files = append(a.Files[:2], txtar.File{Name: "want.md", Data: []byte(got)})
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(a.Files) != 3 || got != string(a.Files[2].Data) {
				t.Errorf("got\n%s\nwant\n%s", got, a.Files[len(a.Files)-1].Data)
			}
			if strings.Contains(got, "IGNORE") {
				t.Error("hidden text is in it")
			}
		})
	}
}

// TestAdversarial checks that pages that are made to take memory or time end with a bounded text
// or an error. The time limit of the test bounds the time.
func TestAdversarial(t *testing.T) {
	r := strings.Repeat
	formats := ""
	for i := range 400 {
		formats += fmt.Sprintf("<b id=%d>", i)
	}
	pages := map[string]string{
		"divs":         r("<div>", 100_000),
		"divs closed":  r("<div>", 100_000) + "x" + r("</div>", 100_000),
		"deep":         r("<div>", 450) + r("<p>some text, which is long enough</p>", 5000),
		"spans":        r("<span>", 100_000) + "x",
		"lists":        r("<ul><li>", 240) + r("x<br>", 20_000),
		"quotations":   r("<blockquote>", 450) + r("x<br>", 20_000),
		"formats":      formats + r("<p>x", 100_000),
		"links":        r("<a href=x>", 200_000),
		"span of cell": `<table>` + r(`<tr><td colspan=99999999 rowspan=99999999>x`, 1000),
		"wide table":   `<table><tr>` + r(`<td>x`, 5_000) + r(`<tr><td>y`, 5_000),
		"tables":       r("<table><tr><td>", 200) + "x",
		"fostered":     "<table>" + r("a<tr>", 100_000),
		"ignored ends": r("a</x>", 100_000),
		"bodies":       r("<body a", 1) + r("><body b1=1", 100_000) + ">",
		"attributes":   "<p " + r("a=b ", 300_000) + ">x",
		"one line":     r("x", 2<<20),
		"stars":        r("*_`[", 300_000),
		"entities":     r("&amp;", 500_000),
		"comments":     r("<!-- x -->", 300_000),
		"open comment": "<!--" + r("-", 1<<20),
		"controls":     r("\x00\x01", 500_000),
		"paragraphs":   r("<p>Some words, and others.</p>", 40_000),
		"nested lists": r("<ul><li>x", 9) + r("<li>y", 20_000),
		"pre":          "<pre>" + r("```\n", 200_000),
	}
	at := parseURL(t, "https://a.example/")
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			title, text, err := markdown(page, at)
			if err == nil && (len(text) > 32<<20 || len(title) > maxTitle*utf8.UTFMax) {
				t.Errorf("the text has %d bytes, the title %d", len(text), len(title))
			}
		})
	}
}

// TestCut checks that the text says where a page was cut because it is too large.
func TestCut(t *testing.T) {
	page := "<p>first</p>" + strings.Repeat("<p>some words</p>", 60_000)
	_, text, err := markdown(page, parseURL(t, "https://a.example/"))
	if err != nil || !strings.HasPrefix(text, "first") || !strings.Contains(text, "was left out]") {
		t.Errorf("a large page = %.20q … %q, %v", text, text[max(0, len(text)-80):], err)
	}
	formats := strings.Repeat("<b>", 400) + strings.Repeat("<p>x", 5000)
	_, text, err = markdown(formats, parseURL(t, "https://a.example/"))
	if err != nil || !strings.Contains(text, "was left out]") {
		t.Errorf("a page that the parser would make large = … %q, %v", text[max(0, len(text)-80):], err)
	}
	deep := strings.Repeat("<div>", 600)
	if _, _, err = markdown(deep, parseURL(t, "https://a.example/")); err == nil ||
		!strings.Contains(err.Error(), "too deeply") {
		t.Errorf("a page that is nested too deeply: %v", err)
	}
}

// TestLimited checks that an expired time limit cuts only a long page.
func TestLimited(t *testing.T) {
	for size, want := range map[int]bool{unhurried: false, 4 * unhurried: true} {
		page := strings.NewReader(strings.Repeat("x", size))
		l := &limited{r: page, until: time.Now().Add(-time.Hour)}
		n, err := io.Copy(io.Discard, l)
		if err != nil || l.late != want || (n < int64(size)) != want {
			t.Errorf("of %d bytes %d are read, late: %t, %v; want late: %t", size, n, l.late, err, want)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb\t c\r\nd":         "a b c d",
		"a\x1b[31mb\x00":        "a[31mb",
		"\u202eabc\u2069":       "abc",
		"a\u2028b":              "a b",
		"\U000e0041x":           "x",
		"x\xffy":                "x\ufffdy",
		strings.Repeat("ä", 50): strings.Repeat("ä", 40) + "…",
		strings.Repeat("ä", 40): strings.Repeat("ä", 40),
	} {
		if got := oneLine(in, 40); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzMarkdown checks that no page makes the conversion panic, that the text is valid and
// bounded, and that it contains no scripts and no hidden text.
func FuzzMarkdown(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(a.Files[1].Data))
	}
	f.Add(`<table><tr><td rowspan=3><td><tr><td colspan=2></table>`)
	f.Add(`<p><b><i><a href=//x><pre><ul><li><blockquote>`)
	at := parseURL(f, "https://a.example/b")
	f.Fuzz(func(t *testing.T, page string) {
		title, text, err := markdown(document.Decode([]byte(page), "text/html"), at)
		if err != nil {
			return
		}
		text = visible(text)
		if !utf8.ValidString(text) || !utf8.ValidString(title) || strings.ContainsAny(title, "\n\r\x00") {
			t.Errorf("title %q, text %q", title, text)
		}
		if len(text) > 100*len(page)+1000 {
			t.Errorf("%d bytes of page give %d bytes of text", len(page), len(text))
		}
		hidden := "<script>S3CR3T1</script><div hidden>S3CR3T2</div><!--S3CR3T3-->"
		_, text, err = markdown(hidden+document.Decode([]byte(page), "text/html"), at)
		if err == nil && strings.Contains(text, "S3CR3T") {
			t.Errorf("hidden text is in %q", text)
		}
	})
}

// largePage returns a page of about 110 KiB that resembles a page of an encyclopaedia or a
// manual.
func largePage() string {
	var b strings.Builder
	b.WriteString("<html><head><title>Large</title></head><body><nav><ul>")
	for i := range 100 {
		fmt.Fprintf(&b, `<li><a href="/n/%d">Entry %d</a></li>`, i, i)
	}
	b.WriteString("</ul></nav><article><h1>Large</h1>")
	for i := range 206 {
		fmt.Fprintf(&b, `<h2 id="s%d">Section %d</h2><p>The <b>first</b> paragraph of it, with `+
			`<a href="/ref/%d">a reference</a>, an <em>emphasis</em>, and enough words for it to be `+
			`taken for a part of what somebody wants to read, instead of a menu.</p>`+
			`<ul><li>one thing</li><li>another, with <code>code</code></li></ul>`, i, i, i)
		if i%10 == 0 {
			b.WriteString("<table><tr><th>Name</th><th>Value</th></tr>")
			for j := range 40 {
				fmt.Fprintf(&b, "<tr><td>name %d</td><td>value of it, %d</td></tr>", j, j*i)
			}
			b.WriteString("</table><pre><code class=\"language-go\">func f() {}\n</code></pre>")
		}
	}
	b.WriteString("</article><footer>Footer</footer></body></html>")
	return b.String()
}

func BenchmarkMarkdown(b *testing.B) {
	page := largePage()
	at := parseURL(b, "https://a.example/")
	if size := len(page) >> 10; size < 105 || size > 115 {
		b.Fatalf("the page has %d KiB, want about 110", size)
	}
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, text, err := markdown(page, at); err != nil || len(text) < 10_000 {
			b.Fatal(len(text), err)
		}
	}
}
