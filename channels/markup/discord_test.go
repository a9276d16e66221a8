package markup

import (
	"regexp"
	"strings"
	"testing"
)

var (
	discordFence   = regexp.MustCompile("^```(?:([a-zA-Z0-9_+\\-.#]+?)\n)?\n*([^\n](?s:.*?))\n*```")
	discordQuoteRE = regexp.MustCompile(`^(?: *> [^\n]*\n?)+`)
	discordItem    = regexp.MustCompile(`^ *(?:[-*+]|\d+\.) +`)
	discordHead    = regexp.MustCompile(`^ *(#{1,3}) +([^\n]+)`)
	discordSubtext = regexp.MustCompile(`^ *-# `)
	discordMask    = regexp.MustCompile(`^\[([^\[\]\n]+)\]\((https?://[^\s()<>]*)\)`)
	discordURL     = regexp.MustCompile(`^https?://[^\s<]+`)
	discordAngle   = regexp.MustCompile(`^<(https?://[^\s<>]+)>`)
	discordSpecial = regexp.MustCompile(
		`^(?:@everyone|@here|<@[!&]?\d+>|<#\d+>|<a?:\w+:\d+>|</[^:>]+:\d+>|<t:-?\d+(?::\w)?>|<id:\w+>)`)
	notInLanguage = regexp.MustCompile(`[^\x00-\x7F]`)
	discordEscape = regexp.MustCompile(`^\\[^0-9A-Za-z\s]`)
)

// readDiscord reads a message as Discord's clients do.
func readDiscord(s string) string {
	r := &reader{inline: discordInline}
	discordBlocks(r, s)
	return r.out.String()
}

// discordBlocks reads the blocks, which begin at the beginning of a line, and the inlines
// between them.
func discordBlocks(r *reader, s string) {
	fresh := true
	for s != "" {
		if fresh {
			if n := discordBlock(r, s); n > 0 {
				s = s[n:]
				continue
			}
		}
		n := 1
		if m := discordFence.FindStringSubmatch(s); m != nil {
			n = len(m[0])
			r.out.WriteString(shadowPre + m[1] + "\n" + m[2] + shadowPre)
		} else if n = discordInline(r, s, 0); n == 0 {
			n = len(string([]rune(s[:min(len(s), 4)])[:1]))
			r.out.WriteString(s[:n])
		}
		fresh = fresh && strings.TrimSpace(s[:n]) == "" || s[n-1] == '\n'
		s = s[n:]
	}
}

func discordBlock(r *reader, s string) int {
	if q := discordQuoteRE.FindString(s); q != "" && !r.quoted {
		var inner strings.Builder
		for line := range strings.Lines(q) {
			_, after, _ := strings.Cut(line, "> ")
			inner.WriteString(after)
		}
		sub := &reader{inline: r.inline, quoted: true}
		discordBlocks(sub, inner.String())
		r.out.WriteString(quoteLines(sub.out.String()))
		return len(q)
	}
	if discordSubtext.MatchString(s) {
		r.out.WriteString(shadowBad)
	}
	if m := discordHead.FindStringSubmatch(s); m != nil {
		r.out.WriteString(shadowHead)
		text := strings.TrimRight(m[2], "# ")
		slashes := len(text) - len(strings.TrimRight(text, `\`))
		if slashes%2 == 1 && strings.HasPrefix(m[2][len(text):], "#") {
			text += "#"
		}
		r.text(text)
		return len(m[0])
	}
	if m := discordItem.FindString(s); m != "" {
		r.out.WriteString(m + shadowItem)
		return len(m)
	}
	return 0
}

// quoteLines puts the mark of a shadow before each line that isn't inside code.
func quoteLines(s string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(s) {
		if !code {
			b.WriteString(shadowQuote + " ")
		}
		b.WriteString(line)
		if strings.Count(line, shadowPre)%2 == 1 {
			code = !code
		}
	}
	return b.String()
}

func discordInline(r *reader, s string, i int) int {
	s = s[i:]
	if m := discordEscape.FindString(s); m != "" {
		_, after, _ := strings.Cut(string([]rune(s)[:2]), `\`)
		r.out.WriteString(after)
		return 1 + len(after)
	}
	if m := discordAngle.FindStringSubmatch(s); m != nil {
		r.out.WriteString(m[1])
		return len(m[0])
	}
	if m := discordSpecial.FindString(s); m != "" {
		r.out.WriteString(shadowBad + m)
		return len(m)
	}
	m := strings.TrimRight(discordURL.FindString(s), `.,:;"')]`)
	if _, rest, _ := strings.Cut(m, "://"); rest != "" {
		r.out.WriteString(m)
		return len(m)
	}
	if m := discordMask.FindStringSubmatch(s); m != nil {
		r.out.WriteString(shadowMark(masked).open)
		r.text(m[1])
		r.out.WriteString("](" + m[2] + shadowMark(masked).close)
		return len(m[0])
	}
	return discordStyle(r, s)
}

// discordStyle reads the style that s begins with. If several styles could begin there, Discord
// takes the longest one.
func discordStyle(r *reader, s string) int {
	if n := codeSpan(s); n > 0 {
		fence := s[:len(s)-len(strings.TrimLeft(s, "`"))]
		r.out.WriteString(shadowCode + strings.TrimSpace(s[len(fence):n-len(fence)]) + shadowCode)
		return n
	}
	best, inner, st := 0, "", bold
	for _, c := range []struct {
		style style
		mark  string
		n     int
	}{
		{italic, "*", discordStar(s)}, {italic, "_", discordUnderscore(s)},
		{bold, "**", discordStrong(s)}, {heading, "__", discordUnderline(s)},
		{strike, "~~", discordPair(s, "~~", "_")}, {hidden, "||", discordPair(s, "||", "")},
	} {
		if c.n > best {
			best, st, inner = c.n, c.style, s[len(c.mark):c.n-len(c.mark)]
		}
	}
	switch {
	case best == 0:
	case st == heading: // underlined text, which Markdown does not have
		r.out.WriteString(shadowBad)
	default:
		r.style(st, inner)
	}
	return best
}

// codeSpan returns the length of the code span that s begins with.
func codeSpan(s string) int {
	n := len(s) - len(strings.TrimLeft(s, "`"))
	for i := n; n > 0 && i < len(s); {
		run := len(s) - i - len(strings.TrimLeft(s[i:], "`"))
		if run == n && i > n {
			return i + n
		}
		i += max(run, 1)
	}
	return 0
}

// discordPair returns the length of a pair of marks for which Discord has no escapes.
func discordPair(s, mark, notBefore string) int {
	if !strings.HasPrefix(s, mark) {
		return 0
	}
	for i := len(mark) + 1; i+len(mark) <= len(s); i++ {
		if strings.HasPrefix(s[i:], mark) &&
			(notBefore == "" || !strings.HasPrefix(s[i+len(mark):], notBefore)) {
			return i + len(mark)
		}
	}
	return 0
}

func discordStrong(s string) int {
	if !strings.HasPrefix(s, "**") {
		return 0
	}
	for i := 2; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case i > 2 && strings.HasPrefix(s[i:], "**") && !strings.HasPrefix(s[i:], "***"):
			return i + 2
		}
	}
	return 0
}

func discordUnderline(s string) int {
	if !strings.HasPrefix(s, "__") {
		return 0
	}
	for i := 2; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case i > 2 && strings.HasPrefix(s[i:], "__") && !strings.HasPrefix(s[i:], "___"):
			return i + 2
		}
	}
	return 0
}

var wordByte = regexp.MustCompile(`^\w`)

func discordUnderscore(s string) int {
	if !strings.HasPrefix(s, "_") {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == '_' && i > 1 && !wordByte.MatchString(s[i+1:]):
			return i + 1
		case strings.HasPrefix(s[i:], "__"):
			i++
		case s[i] == '_':
			return 0
		}
	}
	return 0
}

func discordStar(s string) int {
	if len(s) < 2 || s[0] != '*' || strings.TrimLeftFunc(s[1:], isBlank) != s[1:] {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], "**"):
			i++
		case s[i] == '*' && i > 1 && strings.TrimRightFunc(s[:i], isBlank) == s[:i]:
			return i + 1
		case s[i] == '*':
			return 0
		}
	}
	return 0
}

// checkDiscord checks that Discord shows the meaning of md.
func checkDiscord(t *testing.T, md string) {
	t.Helper()
	got := Discord(md)
	if strings.Contains(readDiscord(got), shadowBad) {
		t.Errorf("Discord(%q) = %q has a mention or underlines", md, got)
	}
	d := discord
	d.pre = func(w *writer, language, s string) {
		language = notInLanguage.ReplaceAllString(language, "")
		w.lines(strings.Split(shadowPre+language+"\n"+cleaned(s)+shadowPre, "\n")...)
	}
	checkMeaning(t, "Discord", md, got, readDiscord(got), d, strings.NewReplacer())
	if n := DiscordLen(md); n != len([]rune(got)) {
		t.Errorf("DiscordLen(%q) = %d, but %q has %d", md, n, got, len([]rune(got)))
	}
}

func FuzzDiscord(f *testing.F) {
	for _, md := range Samples(f) {
		f.Add(md)
	}
	f.Fuzz(func(t *testing.T, md string) {
		if len(md) < 1<<13 {
			checkDiscord(t, md)
		}
	})
}

func TestDiscord(t *testing.T) {
	for _, tt := range []struct{ name, md, want string }{
		{"plain", "It is 5 o'clock.", "It is 5 o'clock."},
		{"strong", "__a__ **b**", "**a b**"},
		{"within a word", "un*frigging*believable", "un*frigging*believable"},
		{"bold in italics", "*a **b***", "_a **b**_"},
		{"side by side", "**ab***c*de", "**ab**\u200b*c*de"},
		{"italics of two kinds", "*a* *b*c", "_a_ *b*c"},
		{"italics in italics", "*a *b*c`*d`*", "_a bc`*d`_"},
		{"strike in italics", "*~~a~~*", "*~~a~~*"},
		{"spoiler", "||a **b**||", "||a **b**||"},
		{"pipes", "a | b || c", `a \| b \|\| c`},
		{"snake", "snake_case and 2 * 3*4", `snake\_case and 2 \* 3\*4`},
		{"backslash", `C:\dir`, `C:\\dir`},
		{"everyone", "@everyone and @here.", "@\u200beveryone and @\u200bhere."},
		{"mentions", "<@123> <@!123> <@&1>", "<@\u200b123> <@\u200b!123> <@\u200b&1>"},
		{"mentions in quotes", "> @everyone", "> @\u200beveryone"},
		{"channel", "<#123>", `\<#123>`},
		{"command", "</cmd:1> but </div>", `\</cmd:1> but </div>`},
		{"time", "<t:1700000000:R>", `\<t:1700000000:R>`},
		{"emoji", "<:x:1> <a:x:1>", `\<:x:1> \<a:x:1>`},
		{"mention in code", "`@everyone`", "`@everyone`"},
		{"line markers", "\\# a\n\\> b\n\\- c\n1\\. d\n\\-# e", "\\# a\n\\> b\n\\- c\n1\\. d\n\\-# e"},
		{"C sharp", "# C\\#", `# C\#`},
		{"deep heading", "#### a", "**a**"},
		{"heading in a list", "- # a", "- # a"},
		{"two lines of a heading", "a\nb\n===", "# a b"},
		{"brackets in a label", "[a [b]](http://c)", "[a (b)](http://c)"},
		{"brackets", "see [1]", `see \[1]`},
		{"parentheses", "[a](<http://b/(c)>)", "[a](http://b/%28c%29)"},
		{"label is an address", "[http://a](http://b)", "http://a http://b"},
		{"mail", "[a](mailto:b@c.d)", "a (mailto:b@c.d)"},
		{"script", "[a](javascript:x)", "a"},
		{"image", "![a](http://b) ![](http://b)", "[a](http://b) [image](http://b)"},
		{"bare link", "see http://a.b/c_d_e.", "see http://a.b/c_d_e."},
		{"bold link", "**http://a.b/c**", "**http://a.b/c**"},
		{"link before a style", "http://a.b/c <http://d>*e*", "http://a.b/c <http://d>*e*"},
		{"quoted link before a style",
			`"http://a.b/c" **d** (e:http://a.b/c). **f** =http://a.b/c_(d) *g*`,
			`"<http://a.b/c>" **d** (e:<http://a.b/c>). **f** =<http://a.b/c_(d)> _g_`},
		{"other scripts", "https://de.wikipedia.org/wiki/Österreich, https://a.ru/Москва_(город) _b_\n" +
			"https://a.jp/日本_語?q=東京\nhttps://a.cn/b。 https://a.cn/b看这里",
			"https://de.wikipedia.org/wiki/Österreich, https://a.ru/Москва_(город) _b_\n" +
				"https://a.jp/日本_語?q=東京\n<https://a.cn/b>。 <https://a.cn/b>看这里"},
		{"local link", "http://localhost/a_b", "http://localhost/a_b"},
		{"fence in code", "````\n```\n````", "```\n`\u200b``\n```"},
		{"language", "```c++ x\na\n```", "```c++\na\n```"},
		{"code in a list", "- ```\n  a\n  ```", "- \n```\na\n```"},
		{"quoted code", "> ```go\n> a\n> ```", "> ```go\n> a\n> ```"},
		{"quoted paragraphs", "> a\n>\n> b", "> a\n> \n> b"},
		{"backquotes", "``a`b`` and ``` a``b ```", "``a`b`` and `a``b`"},
		{"nested lists", "- a\n  - b\n    - c\n1. d\n   - e", "- a\n  - b\n    - c\n1. d\n   - e"},
		{"table", "|a|b|\n|-|-|\n|日本|c|", "```\na    | b\n-----+--\n日本 | c\n```"},
		{"control characters", "a\x00b\x1b[1m\u0085", "ab\\[1m"},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Discord(tt.md); got != tt.want {
				t.Errorf("Discord(%q) = %q, want %q", tt.md, got, tt.want)
			}
			checkDiscord(t, tt.md)
		})
	}
	for _, md := range Samples(t) {
		checkDiscord(t, md)
	}
}
