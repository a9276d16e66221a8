package shell

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// cleaned returns text in the form in which it is shown. It writes the text in pieces of n bytes.
func cleaned(text string, n int) string {
	var e excerpt
	for len(text) > 0 {
		m := min(n, len(text))
		_, _ = e.Write([]byte(text[:m])) // Write always takes all bytes
		text = text[m:]
	}
	return e.String()
}

func TestClean(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"plain\n\ttext ä €  😀", "plain\n\ttext ä €  😀"},
		{"a\x1b[1;31mred\x1b[0m", "ared"},
		{"a\x1b]0;title\ab", "ab"},
		{"a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"},
		{"a\x1b]0;never ended\nb", "ab"},
		{"a\x1b(Bb", "ab"},
		{"a\x1bMb", "ab"},
		{"a\x1bPq\x1b\\b", "ab"},
		{"a\x1b[31\x1b[0mb", "ab"},
		{"10%\r20%\r\n", "10%\n20%\n"},
		{"\a\b\x7f\v", "␇␈␡␋"},
		{"a\u202eb\u2066c\u009bd", "a�b�c�d"},
		{"many words and then one bad byte \xff", "many words and then one bad byte �"},
	}
	for _, tt := range tests {
		for _, n := range []int{1, 2, 3, 1000} {
			if got := cleaned(tt.in, n); got != tt.want {
				t.Errorf("%q in pieces of %d = %q, want %q", tt.in, n, got, tt.want)
			}
		}
	}
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, maxChars/2 - 1, maxChars / 2, maxChars - 1, maxChars} {
		text := strings.Repeat("ä", n)
		if got := cleaned(text, 999); got != text {
			t.Errorf("of %d characters %d are shown", n, utf8.RuneCountInString(got))
		}
	}
	text := strings.Repeat("a", maxChars/2) + "bbb" + strings.Repeat("c", maxChars/2-1) + "d"
	want := strings.Repeat("a", maxChars/2) + "\n[… 3 characters are left out here …]\n" +
		strings.Repeat("c", maxChars/2-1) + "d"
	if got := cleaned(text, 777); got != want {
		t.Errorf("got …%q…", got[maxChars/2-10:maxChars/2+60])
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31mb", 1)
	f.Add("\x1b]0;x\x1b\\y\r\n\xff", 2)
	f.Fuzz(func(t *testing.T, in string, n int) {
		if n < 1 {
			return
		}
		got := cleaned(in, n)
		if whole := cleaned(in, len(in)+1); got != whole {
			t.Errorf("in pieces of %d: %q, whole: %q", n, got, whole)
		}
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%q has %U", got, r)
			}
		}
		if utf8.RuneCountInString(got) > maxChars+100 {
			t.Errorf("%d characters are shown", utf8.RuneCountInString(got))
		}
	})
}
