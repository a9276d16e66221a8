package memory

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func words(text string) string {
	var list []string
	tokenize(text, func(t token) bool {
		list = append(list, t.text)
		return true
	})
	return strings.Join(list, " ")
}

func TestTokenize(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"Hello, World! it's 3.14":       "hello world it s 3 14",
		"Größe Übermut STRASSE Straße":  "grosse ubermut strasse strasse",
		"Škoda naïve Ångström Æther":    "skoda naive angstrom aether",
		"e\u0301te\u0301":               "ete",
		"Ёлка Йод КОШКА":                "елка иод кошка",
		"كِتَابٌ كتـــاب إلى":           "كتاب كتاب الى",
		"שָׁלוֹם":                       "שלום",
		"ΟΔΟΣ οδός":                     "οδοσ οδοσ",
		"हिन्दी":                        "हिन्दी",
		"İstanbul ıspanak":              "istanbul ispanak",
		"会议":                            "会 会议 议",
		"iPhone手机3台":                    "iphone 手 手机 机 3 台",
		"ガｶﾞか":                          "ガ ガガ ガ ガか か",
		"한국어":                           "한 한국 국 국어 어",
		"ไทย":                           "ไ ไท ท ทย ย",
		"🙂🙂 👩‍👧 ❤️":                     "🙂 🙂 👩 👧 ❤",
		"ｆｕｌｌ １２ ﬁne":                   "full 12 fine",
		"a\u00adb a\u200cb":             "ab ab",
		"\u202e\ufe0f\u200d":            "",
		"snake_case a@b.org +49-170":    "snake case a b org 49 170",
		"\xff\xfea\x00b":                "a b",
		strings.Repeat("x", 100) + " y": strings.Repeat("x", maxWord) + " y",
	} {
		if got := words(text); got != want {
			t.Errorf("tokens of %q: %q, want %q", text, got, want)
		}
	}
}

// The tokens of any text are parts of the text, in order and valid UTF-8. They contain no ASCII
// character at which the index would split or that it would take for an operator.
func FuzzTokenize(f *testing.F) {
	for _, s := range []string{"Hello wörld", "会议 ガｶﾞ", "\xff", "🙂‍👧", "İ", "ẞ", "한국", "½ ﷺ ℡",
		"a*b\"c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		before := 0
		tokenize(text, func(tok token) bool {
			if tok.start < 0 || tok.end > len(text) || tok.start >= tok.end || tok.end < before {
				t.Errorf("%q: the token %q is from %d to %d", text, tok.text, tok.start, tok.end)
			}
			before = tok.start
			if tok.text == "" || len(tok.text) > maxWord || !utf8.ValidString(tok.text) {
				t.Errorf("%q has the token %q", text, tok.text)
			}
			for _, r := range tok.text {
				if r < utf8.RuneSelf && !unicode.IsLower(r) && !unicode.IsDigit(r) {
					t.Errorf("%q: the token %q has the character %q", text, tok.text, r)
				}
			}
			return true
		})
	})
}
