package markup_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/rogpeppe/go-internal/txtar"

	"gateway/channels/markup"
	"gateway/channels/telegram/telegramtest"
)

var update = flag.Bool("update", false, "write what the tests got into testdata")

// golden calls got with each archive in testdata/dir. It compares the files that got returns
// with the files that follow the archive's first file, in.md.
func golden(t *testing.T, dir string, got func(t *testing.T, comment, md string) []txtar.File) {
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files in testdata/%s (%v)", dir, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(want.Files) == 0 || want.Files[0].Name != "in.md" {
				t.Fatal("the first file is not in.md")
			}
			files := got(t, string(want.Comment), string(want.Files[0].Data))
			have := &txtar.Archive{
				Comment: want.Comment, Files: append(want.Files[:1:1], files...),
			}
			if *update {
				if err := os.WriteFile(path, txtar.Format(have), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if g, w := string(txtar.Format(have)), string(txtar.Format(want)); g != w {
				t.Errorf("got:\n%s\nwant:\n%s", g, w)
			}
		})
	}
}

func TestRenderGolden(t *testing.T) {
	golden(t, "render", func(t *testing.T, _, md string) []txtar.File {
		return []txtar.File{
			{Name: "telegram.html", Data: []byte(markup.Telegram(md) + "\n")},
			{Name: "plain.txt", Data: []byte(markup.Plain(md) + "\n")},
			{Name: "discord.md", Data: []byte(markup.Discord(md) + "\n")},
			{Name: "terminal.txt", Data: []byte(visible(markup.ANSI(md, 60)) + "\n")},
			{Name: "whatsapp.txt", Data: []byte(markup.WhatsApp(md) + "\n")},
		}
	})
}

// visible returns s with names for the escape sequences of a terminal.
func visible(s string) string { return strings.ReplaceAll(s, "\x1b", "␛") }

func TestSplitGolden(t *testing.T) {
	golden(t, "split", func(t *testing.T, comment, md string) []txtar.File {
		limit, err := strconv.Atoi(strings.TrimSuffix(strings.Fields(comment)[1], ":"))
		if err != nil {
			t.Fatalf("the comment does not begin with a limit: %q", comment)
		}
		var files []txtar.File
		for i, piece := range markup.SplitFirst(md, limit, len(md), markup.TelegramLen) {
			files = append(files, txtar.File{
				Name: fmt.Sprintf("%d.md", i+1), Data: []byte(piece + "\n"),
			})
		}
		return files
	})
}

var htmlTag = regexp.MustCompile(`<[^>]*>`)

// checkTelegram checks the invariants of rendering for Telegram.
func checkTelegram(t *testing.T, md string) {
	t.Helper()
	html := markup.Telegram(md)
	if !strings.ContainsAny(md, "&<>") || html != md {
		if err := telegramtest.CheckHTML(html); err != nil {
			t.Errorf("Telegram(%q) = %q: %v", md, html, err)
		}
	}
	shown, err := telegramtest.ParseHTML(html)
	if err != nil {
		t.Errorf("Telegram(%q) = %q, which Telegram refuses: %v", md, html, err)
	}
	got, want := markup.TelegramLen(md), len(utf16.Encode([]rune(shown)))
	// Many tags or long addresses may count more than the text.
	tags := htmlTag.FindAllString(html, -1)
	few := len(tags) <= 100 && len(strings.Join(tags, "")) <= 3200 && len(html) <= 1<<14
	if got < want || got != want && few {
		t.Errorf("TelegramLen(%q) = %d, but %q has %d units", md, got, html, want)
	}
	if strings.TrimSpace(shown) == "" && strings.Trim(md, "\x00\x01\n\t\r ") != "" &&
		strings.TrimSpace(strings.Map(printable, md)) != "" {
		t.Errorf("Telegram(%q) = %q shows nothing", md, html)
	}
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func FuzzTelegram(f *testing.F) {
	for _, md := range markup.Samples(f) {
		f.Add(md)
	}
	f.Fuzz(func(t *testing.T, md string) {
		if len(md) > 1<<15 {
			return // pieces are never that long
		}
		checkTelegram(t, md) // the fuzzer reports a run of 10 s as a failure
		markup.Plain(md)
	})
}

// A character reference is resolved as a whole or not at all. Unknown references are not
// resolved.
func TestReferences(t *testing.T) {
	for md, want := range map[string]string{
		"a &not b; c":          "a &not b; c",
		"&region=eu;":          "&region=eu;",
		"&notit;":              "&notit;",
		"a?x=1&amp=2;":         "a?x=1&amp=2;",
		"&#x; &#; &#87654321;": "&#x; &#; &#87654321;",
		"&nosuch; & &;":        "&nosuch; & &;",
		"&not; &amp; &#59; &semi; &#x41; &#X42; &#0;": "¬ & ; ; A B \uFFFD",
	} {
		if got := markup.Plain(md); got != want {
			t.Errorf("%q shows as %q, want %q", md, got, want)
		}
	}
}

// A text that would show nothing is shown as it was written.
func TestNothingToShow(t *testing.T) {
	for _, md := range []string{"&ZeroWidthSpace;", "&#xFEFF;", "&#x200b;&#x301;"} {
		if got := markup.Plain(md); got != md {
			t.Errorf("%q shows as %q", md, got)
		}
	}
}

func TestTelegram(t *testing.T) {
	for _, tt := range []struct{ name, md, want string }{
		{"plain", "It is 5 o'clock.", "It is 5 o'clock."},
		{"escapes", "a < b & c > d", "a &lt; b &amp; c &gt; d"},
		{"reference", "&lt;&amp;lt;", "&lt;&amp;lt;"},
		{"raw HTML", "<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"},
		{"code keeps markup", "`a*b* &amp;`", "<code>a*b* &amp;amp;</code>"},
		{"no bold in bold", "# a **b**", "<b>a b</b>"},
		{"no link in link", "[![a](http://i)](http://l)", `<a href="http://l">a</a>`},
		{"no code in link", "[`a`](http://l)", `<a href="http://l">a</a>`},
		{"script link", "[x](javascript:alert%281%29)", "x"},
		{"data link", "[x](DATA:text/html,y)", "x"},
		{"mention link", "[x](tg://user?id=1)", "x"},
		{"mail link", "[x](mailto:a@b.c)", "x (mailto:a@b.c)"},
		{"file link", "[x](docs/a.md)", "x (docs/a.md)"},
		{"quoted address", `[x](http://a/"b")`, `<a href="http://a/%22b%22">x</a>`},
		{"bare link", "see http://a.io/_b_c?d=1&e", "see http://a.io/_b_c?d=1&amp;e"},
		{"spoiler", "it is ||him||.", "it is <tg-spoiler>him</tg-spoiler>."},
		{"logical or", "if (a||b) && (c||d)", "if (a||b) &amp;&amp; (c||d)"},
		{"language", "```c++ x\na\n```", `<pre><code class="language-c++">a</code></pre>`},
		{"hostile language", "```\"><b>\na\n```", `<pre><code class="language-b">a</code></pre>`},
		{"absurd nesting", strings.Repeat("> ", 99) + "x", strings.Repeat("&gt; ", 99) + "x"},
		{"nothing visible", "[r]: http://x", "[r]: http://x"},
		{"nothing but a blank", "&nbsp;", "&amp;nbsp;"},
		{"nested quote", "> a\n> > b", "<blockquote>a\n&gt; b</blockquote>"},
		{"control characters", "a\x00b\x1b[1mc*d*", "ab[1mc<i>d</i>"},
		{"break in table", "|a|\n|-|\n|b<br>c|", "<pre>a\n---\nb c</pre>"},
		{"Chinese colon", "**注意：**正文", "<b>注意：</b>正文"},
		{"Japanese brackets", "これは**「A」**なので**「B」**", "これは<b>「A」</b>なので<b>「B」</b>"},
		{"Korean brackets", "**마크다운(Markdown)**은 *좋다!*고", "<b>마크다운(Markdown)</b>은 <i>좋다!</i>고"},
		{"Chinese deletion", "~~旧（价）。~~新", "<s>旧（价）。</s>新"},
		{"Chinese multiplication", "长 * 宽 * 高", "长 * 宽 * 高"},
		{"ranges", "5~10 min, 周一~周五 or 20~30 min", "5~10 min, 周一~周五 or 20~30 min"},
		{"product", "2*3*4 = 24", "2*3*4 = 24"},
		{"product in bold", "**2*3*4 = 24**", "<b>2*3*4 = 24</b>"},
		{"italics below a number", "Version 2\n*in May*\nTotal: x  \n*a, b*",
			"Version 2\n<i>in May</i>\nTotal: x\n<i>a, b</i>"},
		{"powers", "2**10 + 2**3", "2**10 + 2**3"},
		{"variables", "5*x + 3*y, f(a*b) * g(c*d)", "5*x + 3*y, f(a*b) * g(c*d)"},
		{"product in a table", "|a|\n|-|\n|2*3*4|", "<pre>a\n-----\n2*3*4</pre>"},
		{"part of a word", "the **21**st, un*frigging*believable, two *API*s",
			"the <b>21</b>st, un<i>frigging</i>believable, two <i>API</i>s"},
		{"marks in a word", "**Note:**text", "**Note:**text"},
		{"empty", "", ""},
		{"blank", " \n ", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := markup.Telegram(tt.md); got != tt.want {
				t.Errorf("Telegram(%q) = %q, want %q", tt.md, got, tt.want)
			}
			checkTelegram(t, tt.md)
		})
	}
}

func BenchmarkTelegram(b *testing.B) {
	for _, bm := range []struct{ name, md string }{
		{"plain", "Sure, that works for me. I will be there at nine o'clock, as you asked."},
		{"formatted", "Use **two** of them:\n\n- `go vet`\n- [more](https://staticcheck.dev)\n"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				markup.Telegram(bm.md)
			}
		})
	}
}
