package markup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// stripped returns s without white space.
func stripped(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// checkSplit checks the promises of Split. It repeats the steps of Split to see where it cuts.
func checkSplit(t *testing.T, src string, limit int, measure func(string) int) {
	t.Helper()
	pieces := SplitFirst(src, limit, len(src), measure)
	if strings.TrimSpace(src) == "" {
		if pieces != nil {
			t.Errorf("SplitFirst(%q) = %q, want nothing", src, pieces)
		}
		return
	}
	for _, n := range []int{1, 3} {
		first := SplitFirst(src, limit, n, measure)
		if want := pieces[:min(n, len(pieces))]; !slices.Equal(first, want) {
			t.Errorf("limit %d: the first %d pieces of %q are %q, want %q", limit, n, src, first, want)
		}
	}
	s := newSplitter(src, limit, measure)
	s.definitions = findDefinitions(src)
	src = s.src
	pos := s.begin()
	for i, piece := range pieces {
		again, end := s.next(pos)
		for i > 0 && s.isDefinitions(again) {
			pos = s.skip(end)
			again, end = s.next(pos)
		}
		if piece != again {
			t.Fatalf("piece %d of %q is %q, then %q", i, src, piece, again)
		}
		text := src[pos:end]
		if n := measure(piece); n > limit && utf8.RuneCountInString(text) > 1 {
			t.Errorf("limit %d: piece %q of %q measures %d", limit, piece, src, n)
		}
		if !strings.Contains(stripped(piece), stripped(text)) {
			t.Errorf("limit %d: piece %q does not contain its text %q", limit, piece, text)
		}
		next := s.skip(end)
		if dropped := src[end:next]; strings.TrimSpace(dropped) != "" {
			f := s.around(end)
			if f == nil || end > f.close || strings.TrimSpace(src[end:f.close]) != "" {
				t.Errorf("limit %d: %q is dropped from %q", limit, dropped, src)
			}
		}
		pos = next
	}
	for pos < len(src) {
		last, end := s.next(pos)
		if !s.isDefinitions(last) {
			break
		}
		pos = s.skip(end)
	}
	if pos != len(src) {
		t.Errorf("limit %d: %q is left over of %q", limit, src[pos:], src)
	}
}

func FuzzSplit(f *testing.F) {
	for _, src := range []string{
		"one two three\n\nfour five six. seven\neight", "```go\nfunc a() {\n\tb()\n}\n```\nafter",
		"a ```\nb\n\n\n\nc\n", "> ```\n> x\n> y z\n> ```\n\nq",
		"- a\n  ```x\n  code code code\n  ```\n- b",
		"👩‍👩‍👧👩‍👩‍👧🇩🇪🇫🇷é́́́é", "日本語。テスト！日本語。テスト！",
		strings.Repeat("x", 99), "||||\n|--|\n|a|",
		"[l](http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa)\n[r]: http://bbbbbbbbbbbbbbb\n",
		"\x80\x80\x80\xff",
		"~~~~\n```\n~~~\n~~~~\n~~~",
		"**" + strings.Repeat("bold words. ", 20) + "end** and **more\nof it**\n\n**no\n\nend",
		"a\n| b | c |\n|--|--|\n" + strings.Repeat("| d | e f |\n", 9) + "\n g | h\n -|-\n i | j\n",
		"```" + strings.Repeat("i", 80) + "\nx\n```", "\n\n    code\n",
	} {
		f.Add(src, 10)
		f.Add(src, 40)
	}
	f.Fuzz(func(t *testing.T, src string, limit int) {
		limit = 1 + int(uint(limit)%300)
		if len(src) > 1<<12 {
			return // TestSplitIsFast covers long texts
		}
		for _, measure := range []func(string) int{TelegramLen, DiscordLen, WhatsAppLen} {
			checkSplit(t, src, limit, measure)
		}
		checkSplit(t, src, limit, func(s string) int { return len(s) })
	})
}

// FuzzIsPlain compares isPlain, a shortcut, with the parser.
func FuzzIsPlain(f *testing.F) {
	for _, md := range []string{
		"a", "a\nb", "a\n\nb", "a. b-c = d: e+f #1", "1. a", "a\n- b", "ö\u2028", "\u05b6\u2028",
	} {
		f.Add(md)
	}
	f.Fuzz(func(t *testing.T, md string) {
		if !isPlain(md) {
			return
		}
		if got := render(md, &telegram); got.out.String() != md || got.units != units(md) {
			t.Errorf("%q renders as %q with %d units", md, got.out.String(), got.units)
		}
	})
}

func TestSplitKeepsGraphemes(t *testing.T) {
	const family, flag = "👩‍👩‍👧", "🇩🇪"
	for _, src := range []string{
		strings.Repeat(family, 50), strings.Repeat(flag, 50), strings.Repeat("e\u0301", 50),
		"x" + strings.Repeat(family, 50), strings.Repeat("x"+flag, 50),
	} {
		whole := graphemes(src)
		var cut []string
		for _, piece := range SplitFirst(src, 30, len(src), TelegramLen) {
			cut = append(cut, graphemes(piece)...)
		}
		if len(cut) != len(whole) {
			t.Errorf("%q has %d characters, its pieces %d", src, len(whole), len(cut))
		}
	}
}

func graphemes(s string) (all []string) {
	for state := -1; s != ""; {
		var c string
		c, s, _, state = uniseg.FirstGraphemeClusterInString(s, state)
		all = append(all, c)
	}
	return all
}

func TestSplitPrefers(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		first     string
	}{
		{"all", "short", "short"},
		{"paragraph", "a b.\n\nc d. e f\ng h i j k l", "a b."},
		{"line", "a b c d. e\nf g h. i j k l m n", "a b c d. e"},
		{"sentence", "a b c d e. f g h i j k l", "a b c d e."},
		{"word", "abc def ghi jklmnopqr", "abc def ghi"},
		{"character", "abcdefghijklmnopqrstuvw", "abcdefghijklmno"},
		{"fence's edge", "a b c\n```\nd e f\ng h i\n```", "a b c"},
		{"paragraph at the limit", "a b. c d\n e f.\n\ng h i j k l", "a b. c d\n e f."},
		{"line at the limit", "a b. c d. e f g\nh i j k l", "a b. c d. e f g"},
		{"sentence at the limit", "a b. c d e fgh. i j k l", "a b. c d e fgh."},
		{"CJK sentence at the limit", "一二三四五六七八九十一二三四。五六七", "一二三四五六七八九十一二三四。"},
		{"late place", "a\n\nbcdefghi jklmno pqr", "a\n\nbcdefghi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pieces := SplitFirst(tt.src, 15, len(tt.src), TelegramLen)
			if len(pieces) == 0 || pieces[0] != tt.first {
				t.Errorf("SplitFirst(%q) = %q, want %q first", tt.src, pieces, tt.first)
			}
			checkSplit(t, tt.src, 15, TelegramLen)
		})
	}
}

// If strong text is cut, each piece is strong and shows no marks.
func TestSplitStrong(t *testing.T) {
	src := "Before **" + strings.Repeat("bold words. ", 20) + "end** after"
	pieces := SplitFirst(src, 60, len(src), WhatsAppLen)
	if len(pieces) < 4 {
		t.Fatalf("%d pieces, want more", len(pieces))
	}
	for i, piece := range pieces {
		shown := WhatsApp(piece)
		if strings.Contains(shown, "**") || strings.Count(shown, "*") != 2 {
			t.Errorf("piece %d shows as %q", i, shown)
		}
	}
	checkSplit(t, src, 60, WhatsAppLen)
	for _, src := range []string{
		"`**" + strings.Repeat("code words ", 20) + "**`", "**" + strings.Repeat("no end ", 20),
		"** " + strings.Repeat("no beginning ", 20) + "**",
	} {
		got := strings.Join(SplitFirst(src, 60, len(src), WhatsAppLen), " ")
		if stripped(got) != stripped(src) {
			t.Errorf("SplitFirst(%q) adds marks: %q", src, got)
		}
	}
}

// If a table is cut, each piece is a table with the names of the columns.
func TestSplitTable(t *testing.T) {
	const head = "| n | name \\| value |\n|---|---|\n"
	src := "Text before:\n\n" + head
	for i := range 40 {
		src += fmt.Sprintf("| %d | the name of it |\n", i)
	}
	src += "\nText after."
	for _, src := range []string{src, strings.ReplaceAll(src, "\n|", "\n   |")} {
		pieces := SplitFirst(src, 300, len(src), TelegramLen)
		if len(pieces) < 3 {
			t.Fatalf("%d pieces, want more", len(pieces))
		}
		for i, piece := range pieces {
			html := Telegram(piece)
			if !strings.Contains(html, "<pre>n  | name | value\n") && !strings.HasPrefix(html, "Text") {
				t.Errorf("piece %d shows as %q", i, html)
			}
			if strings.Contains(html, "| the name of it |") {
				t.Errorf("piece %d has rows that are no table: %q", i, html)
			}
		}
		checkSplit(t, src, 300, TelegramLen)
	}
	for _, src := range []string{ // no tables, or no room for the names
		"a | b\n" + strings.Repeat("c | d\n", 60), "> a | b\n> -|-\n" + strings.Repeat("> c | d\n", 60),
		"```\na | b\n-|-\n" + strings.Repeat("c | d\n", 60) + "```",
		"a | " + strings.Repeat("b", 30) + "\n-|-\n" + strings.Repeat("c | d\n", 60),
	} {
		for i, piece := range SplitFirst(src, 100, len(src), TelegramLen) {
			if i > 0 && strings.Contains(piece, "a |") {
				t.Errorf("SplitFirst(%q) repeats the names: %q", src, piece)
			}
		}
		checkSplit(t, src, 100, TelegramLen)
	}
}

// If a text is cut within a line of a quotation, the rest of the line stays in the quotation.
func TestSplitQuotation(t *testing.T) {
	for _, src := range []string{
		"> " + strings.Repeat("words of somebody. ", 20) + "\n> - **more** of it",
		"> a\n> > " + strings.Repeat("words of **somebody else**, ", 20) + "\n\nEnd",
		"> - " + strings.Repeat("words of an item ", 20) + "\n> - b",
	} {
		pieces := SplitFirst(src, 80, len(src), DiscordLen)
		if len(pieces) < 4 {
			t.Fatalf("%d pieces, want more", len(pieces))
		}
		for _, piece := range pieces {
			for line := range strings.Lines(Discord(piece)) {
				if !strings.HasPrefix(line, "> ") && line != "End" && line != "\n" {
					t.Errorf("the piece %q is not in the quotation", piece)
				}
			}
		}
		checkSplit(t, src, 80, DiscordLen)
	}
}

// Links whose definitions are in another piece are links, and nobody sees the definitions.
func TestSplitDefinitions(t *testing.T) {
	var src, end strings.Builder
	for i := range 9 {
		fmt.Fprintf(&src, "Some words, [source %d][%[1]d] and [Name\n%[1]d] and `[%[1]d]`.\n\n", i)
		fmt.Fprintf(&end, "[%d]: https://a/%[1]d \"title\"\n[NAME  %[1]d]: <http://b/%[1]d>\n", i)
	}
	both := src.String() + end.String()
	for _, src := range []string{
		both, both + "\nText after.", end.String() + "\n" + src.String(),
	} {
		for limit := 70; limit < 500; limit += 30 {
			checkSplit(t, src, limit, TelegramLen)
			links := 0
			for i, piece := range SplitFirst(src, limit, len(src), TelegramLen) {
				html := Telegram(piece)
				links += strings.Count(html, "<a href=")
				if strings.Contains(html, "]:") && (i > 0 || strings.HasPrefix(src, "Some")) {
					t.Errorf("limit %d: piece %q shows as %q", limit, piece, html)
				}
			}
			if links != 18 {
				t.Errorf("limit %d: %d links, want 18", limit, links)
			}
		}
	}
	if got := SplitFirst(end.String(), 70, 99, TelegramLen); len(got) < 3 {
		t.Errorf("definitions alone are split into %q", got)
	}
}

// hard returns texts of size bytes that are slow to split if the algorithm is careless.
func hard(size int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	return map[string]string{
		"prose":      fill("The quick brown fox jumps over the lazy dog. It does so again.\n\n"),
		"markdown":   fill("Use **two** of `them`:\n\n- a [link](https://go.dev/x)\n- *more*\n\n"),
		"word":       fill("x"),
		"code line":  "```go\n" + fill("x") + "\n```",
		"code":       "```go\n" + fill("if a < b {\n\treturn\n}\n") + "```",
		"fences":     fill("```\nx\n```\n"),
		"open fence": fill("```\n"),
		"emoji":      fill("👩‍👩‍👧"),
		"flags":      fill("🇩🇪"),
		"japanese":   fill("日本語のテキストです。"),
		"marks":      fill("\u0301"),
		"blank":      "a" + fill(" ") + "b",
		"lines":      "a" + fill("\n") + "b",
		"code blank": "```\na" + fill("\n") + "b\n```",
		"addresses":  fill("[a](https://example.org/a/very/long/address/that/nobody/sees)\n"),
		"quotes":     fill("> "),
		"lists":      fill("- "),
		"brackets":   fill("["),
		"links":      fill("[a]("),
		"asterisks":  fill("*a "),
		"emphasis":   fill("**a _b "),
		"backquotes": fill("`a``b"),
		"pipes":      "|a|b|\n|-|-|\n" + fill("|c|d|\n"),
		"references": fill("&amp;"),
		"invalid":    fill("\x80"),
		"tags":       fill("<a "),
		"autolinks":  fill("www.a.b "),
	}
}

// TestSplitIsLinear counts the measured bytes, because measuring takes most of the time.
func TestSplitIsLinear(t *testing.T) {
	const size, limit = 1 << 17, 4096
	for name, src := range hard(size) {
		t.Run(name, func(t *testing.T) {
			measured := 0
			pieces := SplitFirst(src, limit, len(src), func(s string) int {
				measured += len(s)
				return TelegramLen(s)
			})
			for _, piece := range pieces {
				if n := TelegramLen(piece); n > limit {
					t.Fatalf("a piece measures %d", n)
				}
			}
			if most := 12 * size; measured > most {
				t.Errorf("%d bytes were measured, want %d at most", measured, most)
			}
		})
	}
}

func BenchmarkSplit(b *testing.B) {
	for name, src := range hard(1 << 20) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				SplitFirst(src, 4096, len(src), TelegramLen)
			}
		})
	}
}

func BenchmarkRender(b *testing.B) {
	src := strings.Repeat("Use **two** of `them`:\n\n- a [link](https://go.dev/x)\n- *more*\n\n", 30)
	for _, bm := range []struct {
		name   string
		render func(string) string
	}{
		{"telegram", Telegram}, {"discord", Discord}, {"whatsapp", WhatsApp}, {"plain", Plain},
		{"ansi", func(md string) string { return ANSI(md, 80) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				bm.render(src)
			}
		})
	}
}
