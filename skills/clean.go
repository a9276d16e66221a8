package skills

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"gateway/store/plaintext"
)

// goodName matches names in the form of agentskills.io.
var goodName = plaintext.Pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// validName reports whether a name has the recommended form: lower-case letters, digits
// and single hyphens, at most 64 characters.
func validName(name string) bool { return len(name) <= maxName && goodName().MatchString(name) }

// isShowable reports whether a name can be shown and mentioned, even if its form is not the
// recommended one.
func isShowable(name string) bool {
	if n := utf8.RuneCountInString(name); n == 0 || n > maxName || !utf8.ValidString(name) {
		return false
	}
	if first, _ := utf8.DecodeRuneInString(name); !unicode.In(first, unicode.L, unicode.N) {
		return false
	}
	return strings.TrimRight(name, ". ") == name &&
		strings.IndexFunc(name, func(r rune) bool { return r != ' ' && !inName(r) }) < 0
}

// inName reports whether a character can be part of a name that is mentioned as $name.
func inName(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N, unicode.M) || r == '-' || r == '_' || r == '.'
}
