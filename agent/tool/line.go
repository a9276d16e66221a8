package tool

import (
	"strings"
	"unicode"
)

// OneLine returns s on one line, without invisible characters and without those that change the
// direction of text.
func OneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}
