package plaintext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"gateway/store/plaintext"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text      string
		n         int
		cut, clip string
	}{
		{"", 0, "", ""},
		{"word", 4, "word", "word"},
		{"words", 4, "word", "word…"},
		{"één", 3, "é", "é…"}, // the third byte is half a character
		{"日本", 2, "", "…"},
	} {
		if got := plaintext.Cut(c.text, c.n); got != c.cut {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.text, c.n, got, c.cut)
		}
		if got := plaintext.Clip(c.text, c.n); got != c.clip {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.text, c.n, got, c.clip)
		}
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		" two\r\n\twords\u00a0 ":  "two words",
		"\u202eab\u200bc\x00\x1b": "abc",
		"\xff\xfea":               "\uFFFDa",
		"é 日本 😀":                  "é 日本 😀",
	} {
		if got := plaintext.OneLine(text); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("héllo", 2)
	f.Add("\x80\x80\x80", 1)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 0 {
			return
		}
		got := plaintext.Cut(s, n)
		if len(got) > n || !strings.HasPrefix(s, got) {
			t.Errorf("Cut(%q, %d) = %q", s, n, got)
		}
		if utf8.ValidString(s) && (!utf8.ValidString(got) || len(s) > n && len(got) < n-3) {
			t.Errorf("Cut(%q, %d) = %q: a part of a rune is there or missing", s, n, got)
		}
	})
}
