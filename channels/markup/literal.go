package markup

import (
	"strings"
	"unicode"
)

// Literal returns Markdown that displays s unchanged.
func Literal(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 && r != ' ' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
