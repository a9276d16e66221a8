package wire

import (
	"strings"
	"testing"
)

// TestAppendText checks that AppendText gives the same result as the standard library.
func TestAppendText(t *testing.T) {
	var all strings.Builder
	for r := range rune(0x3000) {
		all.WriteRune(r)
	}
	for _, s := range []string{"", "plain", `a "quoted" \ word`, "two\nlines\r\n\t\b\f\x00\x1f\x7f",
		"<b>&amp;</b>", "größer, больше, 大きい, 👍🏽", "a\u2028b\u2029c\u2027d…", all.String(),
		"<a>\xff\"b\xe2\x80"} {
		want, err := EncodePlain(s, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendText([]byte("x"), s); string(got) != "x"+string(want) {
			t.Errorf("AppendText(%q) = %s, want %s", s, got[1:], want)
		}
	}
}

// FuzzAppendText checks that AppendText gives the same result as the standard library.
func FuzzAppendText(f *testing.F) {
	f.Add("a \"b\"\n\u2028…")
	f.Fuzz(func(t *testing.T, s string) {
		want, err := EncodePlain(s, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendText(nil, s); string(got) != string(want) {
			t.Errorf("AppendText(%q) = %s, want %s", s, got, want)
		}
	})
}
