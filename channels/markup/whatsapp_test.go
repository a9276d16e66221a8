package markup

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	whatsAppFence = regexp.MustCompile("^```(?s:(.+?))```")
	whatsAppSpan  = regexp.MustCompile("^`([^`\n]+)`")
	whatsAppItem  = regexp.MustCompile(`^ *(?:[-*]|\d+\.) +`)
)

// readWhatsApp reads a message as WhatsApp's clients do.
func readWhatsApp(s string) string {
	r := &reader{inline: whatsAppInline}
	fresh := true
	for s != "" {
		if quote, ok := strings.CutPrefix(s, "> "); ok && fresh {
			line, rest, more := strings.Cut(quote, "\n")
			r.out.WriteString(shadowQuote + " ")
			r.text(whatsAppMarker(r, line))
			if more {
				r.out.WriteString("\n")
			}
			s = rest
			continue
		}
		if fresh {
			s = whatsAppMarker(r, s)
		}
		if s == "" {
			break
		}
		n := whatsAppInline(r, s, 0)
		if n == 0 {
			line, _, more := strings.Cut(s, "\n")
			n = len(line)
			if i := strings.Index(line, "```"); i > 0 {
				n, more = i, false
			}
			r.text(line[:n])
			if more {
				r.out.WriteString("\n")
				n++
			}
		}
		fresh = n > 0 && s[n-1] == '\n'
		s = s[n:]
	}
	return r.out.String()
}

func whatsAppMarker(r *reader, s string) string {
	for {
		m := whatsAppItem.FindString(s)
		if m == "" {
			return s
		}
		r.out.WriteString(m + shadowItem)
		s = s[len(m):]
	}
}

func whatsAppInline(r *reader, s string, i int) int {
	if m := whatsAppFence.FindStringSubmatch(s[i:]); m != nil {
		r.out.WriteString(shadowCode + strings.TrimSpace(m[1]) + shadowCode)
		return len(m[0])
	}
	if m := whatsAppSpan.FindStringSubmatch(s[i:]); m != nil {
		r.out.WriteString(shadowCode + strings.TrimSpace(m[1]) + shadowCode)
		return len(m[0])
	}
	st, ok := whatsAppStyle[s[i]]
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	if !ok || i > 0 && isWhatsAppWord(before) {
		return 0
	}
	if len(s) == i+1 || strings.TrimLeftFunc(s[i+1:], isBlank) != s[i+1:] {
		return 0
	}
	for j := i + 2; j < len(s) && s[j] != '\n'; j++ {
		after, _ := utf8.DecodeRuneInString(s[j+1:])
		if s[j] == s[i] && strings.TrimRightFunc(s[:j], isBlank) == s[:j] && !isWhatsAppWord(after) {
			r.style(st, s[i+1:j])
			return j + 1 - i
		}
	}
	return 0
}

func isWhatsAppWord(c rune) bool { return isWord(c) || string(c) == joint }

// checkWhatsApp checks that WhatsApp shows the meaning of md.
func checkWhatsApp(t *testing.T, md string) {
	t.Helper()
	got := WhatsApp(md)
	d := whatsApp
	d.marks[hidden] = mark{} // a spoiler is plain text in WhatsApp
	d.pre = func(w *writer, _, s string) {
		s = cleaned(s)
		if w.active[quoted] == 0 {
			w.lines(strings.Split(shadowCode+s+shadowCode, "\n")...)
			return
		}
		var lines []string
		for line := range strings.SplitSeq(s, "\n") {
			if strings.TrimFunc(line, isBlank) != "" {
				lines = append(lines, shadowCode+line+shadowCode)
			}
		}
		w.lines(lines...)
	}
	read := readWhatsApp(got)
	if strings.Contains(md, "||") {
		return // a spoiler is plain text in WhatsApp
	}
	// In WhatsApp, quotations in lists and the like are no quotations, so only styles are compared.
	lineMarks := strings.NewReplacer(shadowQuote, "", shadowItem, "", ">", "")
	checkMeaning(t, "WhatsApp", md, got, lineMarks.Replace(read), d, lineMarks)
	if n := WhatsAppLen(md); n != len([]rune(got)) {
		t.Errorf("WhatsAppLen(%q) = %d, but %q has %d", md, n, got, len([]rune(got)))
	}
}

func FuzzWhatsApp(f *testing.F) {
	for _, md := range Samples(f) {
		f.Add(md)
	}
	f.Fuzz(func(t *testing.T, md string) {
		if len(md) < 1<<13 {
			checkWhatsApp(t, md)
		}
	})
}

func TestWhatsApp(t *testing.T) {
	for _, tt := range []struct{ name, md, want string }{
		{"plain", "It is 5 o'clock.", "It is 5 o'clock."},
		{"styles", "**a** *b* ~~c~~ `d`", "*a* _b_ ~c~ `d`"},
		{"bold in italics", "*a **b***", "_a *b*_"},
		{"both", "***a***", "*_a_*"},
		{"within a word", "un*frigging*believable", "unfriggingbelievable"},
		{"product", "2*3*4 = 24", "2*3*4 = 24"},
		{"longer product", "so 12*3*2=72", "so 12*3*2=72"},
		{"variables", "5*x*y and a*b*c", "5*x*y and a*b*c"},
		{"calls", "f(a*b) * g(c*d)", "f(a*b) \u200c* g(c*d)"},
		{"more calls", "min(a)*max(b)*rest", "min(a)\u200c*max(b)\u200c*rest"},
		{"power", "2**3**4", "2*\u200c*3*\u200c*4"},
		{"product in bold", "**2*3*4 = 24**", "*2*\u200c3*\u200c4 = 24*"},
		{"query", "https://example.org/?d=*e*", "https://example.org/?d=%2Ae%2A"},
		{"plural", "two *API*s, **3**D, un**believ**able", "two APIs, 3D, unbelievable"},
		{"without spaces", "第**3**章，价格5**元**。", "第3章，价格5元。"},
		{"two lines", "**a\nb**", "*a*\n*b*"},
		{"end of a line", "**a**\nb _c_\\\nd ~~e~~  \nf", "*a*\nb _c_\nd ~e~\nf"},
		{"blanks", "**a ** b", "\u200c*\u200c*a \u200c*\u200c* b"},
		{"literal", `\*a\* \_b\_ \~c\~`, "\u200c*a* \u200c_b_ \u200c~c~"},
		{"literal in style", `**a\*, b**`, "*a*\u200c, b*"},
		{"snake", "snake_case and 2 * 3", "snake_case and 2 \u200c* 3"},
		{"backquote", "a ` b", "a ‵ b"},
		{"line markers", "\\> a\n\\- b\n1\\. c", "\u200c> a\n\u200c- b\n\u200c1. c"},
		{"heading", "## a *b*\ntext", "*a _b_*\ntext"},
		{"spoiler", "it is ||him||.", "it is (hidden: him)."},
		{
			"link", "[a](http://b) [mail](mailto:c@d.e) <http://f>",
			"a (http://b) mail (mailto:c@d.e) http://f",
		},
		{"link is its label", "[http://b](http://b)", "http://b"},
		{"bold link", "**[a](http://b)**", "*a (http://b)*"},
		{"link with marks", "http://a.b/_c_d", "http://a.b/%5Fc_d"},
		{"image", "![a](http://b)", "a (http://b)"},
		{"quote", "> a\n> > b\n>\n> c", "> a\n> > b\n> c"},
		{"quoted code", "> ```\n> a\n>\n> b\n> ```", "> ```a```\n> ```b```"},
		{"code", "```go\na\n\nb\n```", "```\na\n\nb\n```"},
		{"fence in code", "````\n```\n````", "```\n`\u200b``\n```"},
		{"backquote in code", "``a`b``", "```a\u200b`\u200bb```"},
		{"nested lists", "- a\n  - b\n1. c\n   - d", "- a\n  - b\n1. c\n   - d"},
		{"table", "|a|b|\n|-|-|\n|日本|c|", "```\na    | b\n-----+--\n日本 | c\n```"},
		{"control characters", "a\x00*b*\u0085", "ab"},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := WhatsApp(tt.md); got != tt.want {
				t.Errorf("WhatsApp(%q) = %q, want %q", tt.md, got, tt.want)
			}
			checkWhatsApp(t, tt.md)
		})
	}
	for _, md := range Samples(t) {
		checkWhatsApp(t, md)
	}
}
