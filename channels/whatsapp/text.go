package whatsapp

import (
	"strings"
	"unicode"
)

// maxName is the longest name of a person or group that is passed on, in runes.
const maxName = 128

// bracket returns "[kind: detail]". The detail is foreign text and can't end the bracket.
func bracket(kind, detail string) string {
	detail = strings.NewReplacer("[", "(", "]", ")").Replace(clean(detail, 200))
	if detail == "" {
		return "[" + kind + "]"
	}
	return "[" + kind + ": " + detail + "]"
}

// clean returns s as one line of at most limit runes, fit to stand in a prompt or a log: runs of
// blanks and control characters are one blank, and what is invisible or turns the direction of
// writing is left out, but for the joiners that scripts and emoji need.
func clean(s string, limit int) string {
	const joiner, nonJoiner = '\u200d', '\u200c'
	out := make([]rune, 0, min(len(s), limit))
	gap := false
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			gap = len(out) > 0
			continue
		}
		if r == unicode.ReplacementChar || unicode.Is(unicode.Cf, r) && r != joiner && r != nonJoiner {
			continue
		}
		if gap {
			out = append(out, ' ')
			gap = false
		}
		if len(out) >= limit {
			break
		}
		out = append(out, r)
	}
	return strings.TrimRight(string(out), " ")
}

// without returns s without the mention s[start:end] and what set it off from the rest.
func without(s string, start, end int) string {
	left, right := s[:start], s[end:]
	if strings.TrimSpace(left) == "" {
		return strings.TrimLeft(right, " \t\n,:;")
	}
	if strings.HasSuffix(left, "\n") {
		return left + strings.TrimLeft(right, " ")
	}
	return strings.TrimRight(left, " ") + right
}
