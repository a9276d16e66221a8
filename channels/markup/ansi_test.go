package markup

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// checkANSI checks that ANSI(md, width) has only the escape sequences of styles, that each line
// closes the styles that it opens, that lines fit, and that no text is lost.
func checkANSI(t *testing.T, md string, width int) {
	t.Helper()
	got := ANSI(md, width)
	for line := range strings.SplitSeq(got, "\n") {
		var open []string
		for _, s := range sequence.FindAllString(line, -1) {
			if closing[s] != "" {
				open = append(open, closing[s])
			} else if i := slices.Index(open, s); i >= 0 {
				open = slices.Delete(open, i, i+1)
			} else {
				t.Errorf("ANSI(%q) = %q: %q closes nothing", md, got, s)
			}
		}
		if len(open) > 0 {
			t.Errorf("ANSI(%q) = %q: %q stays open", md, got, line)
		}
		shown := sequence.ReplaceAllString(line, "")
		if strings.ContainsFunc(shown, unicode.IsControl) {
			t.Errorf("ANSI(%q) = %q has control characters", md, got)
		}
		w := uniseg.StringWidth(shown)
		if width > 0 && w > width && uniseg.GraphemeClusterCount(shown) > 1 {
			t.Errorf("ANSI(%q, %d) has a line %q of %d columns", md, width, shown, w)
		}
	}
	if utf8.ValidString(md) && width > 0 && !strings.ContainsAny(md, "|:") {
		bare := func(s string) string {
			s = strings.ReplaceAll(sequence.ReplaceAllString(s, ""), "│", "")
			return strings.Map(func(r rune) rune {
				if isBlank(r) {
					return -1
				}
				return r
			}, s)
		}
		if a, b := bare(got), bare(ANSI(md, 0)); a != b {
			t.Errorf("ANSI(%q, %d) shows %q, unwrapped %q", md, width, a, b)
		}
	}
}

func FuzzANSI(f *testing.F) {
	for _, md := range Samples(f) {
		f.Add(md, 40)
	}
	f.Fuzz(func(t *testing.T, md string, width int) {
		if len(md) < 1<<13 {
			checkANSI(t, md, 24+int(uint(width)%100))
			checkANSI(t, md, 0)
		}
	})
}

func TestANSI(t *testing.T) {
	const b, nb, i, ni, u, nu = "\x1b[1m", "\x1b[22m", "\x1b[3m", "\x1b[23m", "\x1b[4m", "\x1b[24m"
	for _, tt := range []struct {
		name, md string
		width    int
		want     string
	}{
		{"plain", "It is 5 o'clock.", 0, "It is 5 o'clock."},
		{
			"styles", "**a** *b* ~~c~~ `d`", 0,
			b + "a" + nb + " " + i + "b" + ni + " \x1b[9mc\x1b[29m \x1b[36md\x1b[39m",
		},
		{"heading", "# a *b*", 0, b + "a " + i + "b" + ni + nb},
		{"link", "[a](http://b)", 0, u + "a" + nu + " (http://b)"},
		{"bare link", "see http://a.b/c.", 0, "see " + u + "http://a.b/c" + nu + "."},
		{"wrapped", "one two three four five six", 24, "one two three four five\nsix"},
		{
			"wrapped style", "**one two three four five six**", 24,
			b + "one two three four five" + nb + "\n" + b + "six" + nb,
		},
		{
			"word across styles", "one two three four fi**ve** six", 24,
			"one two three four fi" + b + "ve" + nb + "\nsix",
		},
		{"list", "- one two three four five six", 24, "• one two three four\n  five six"},
		{"quote", "> one two three four five six", 24, "│ one two three four\n│ five six"},
		{
			"long word", strings.Repeat("x", 30), 24,
			strings.Repeat("x", 24) + "\n" + strings.Repeat("x", 6),
		},
		{"CJK", strings.Repeat("日本語", 5), 24, strings.Repeat("日本語", 4) + "\n日本語"},
		{"emoji", strings.Repeat("👩‍👩‍👧", 13), 24, strings.Repeat("👩‍👩‍👧", 12) + "\n👩‍👩‍👧"},
		{
			"code", "```go\na\tb\n\nc\n```", 0,
			"\x1b[36ma    b\x1b[39m\n\x1b[36m\x1b[39m\n\x1b[36mc\x1b[39m",
		},
		{
			"long code", "    " + strings.Repeat("ab ", 10), 24,
			"\x1b[36m" + strings.Repeat("ab ", 8) + "\x1b[39m\n\x1b[36mab ab \x1b[39m",
		},
		{"table", "|a|b|\n|-|-|\n|日本|c|", 0, "a    | b\n-----+--\n日本 | c"},
		{
			"narrow table", "|name|what it is|\n|-|-|\n|first|one two three four five|", 24,
			"name  | what it is\n------+-----------------\nfirst | one two three\n      | four five",
		},
		{
			"too many columns", "|a|b|c|d|\n|-|-|-|-|\n|one one|two two|three|four four|", 24,
			"a: one one\nb: two two\nc: three\nd: four four",
		},
		{"control characters", "a\x1b[2Jb\u009b1mc\x07\rd\u202e", 0, "a[2Jb1mcd"},
		{
			"control characters in code", "`a\x1b[2Jb`\n\n    \x1b]0;x\x07", 0,
			"\x1b[36ma[2Jb\x1b[39m\n\n\x1b[36m]0;x\x1b[39m",
		},
		{"control references", "&#27;[2J&#x9b;1m", 0, "[2J›1m"},
		{"spoiler", "||a||", 0, "||a||"},
		{"empty", "", 10, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ANSI(tt.md, tt.width); got != tt.want {
				t.Errorf("ANSI(%q, %d) = %q, want %q", tt.md, tt.width, got, tt.want)
			}
			checkANSI(t, tt.md, tt.width)
		})
	}
	for _, md := range Samples(t) {
		checkANSI(t, md, 40)
	}
}
