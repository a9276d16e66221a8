package channels

import (
	"cmp"
	"strings"
	"unicode"

	"gateway/bus"
)

// MaxName is the longest name of a person, a chat or a file that is passed on, in runes.
const MaxName = 128

// Clean makes one line of what a stranger chose, at most limit runes long, fit to stand in a prompt
// or a log: control characters and line breaks become blanks, marks that are invisible or turn the
// direction of writing go, and so does what is no text. The two joiners stay, since scripts and
// emoji need them.
func Clean(s string, limit int) string {
	var b strings.Builder
	blank, n := false, 0
	for _, r := range s {
		const joiner, nonJoiner = '\u200d', '\u200c'
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp):
			blank = true
			continue
		case r == unicode.ReplacementChar,
			unicode.Is(unicode.Cf, r) && r != joiner && r != nonJoiner:
			continue
		}
		blank = blank && n > 0
		if n >= limit || blank && n+1 >= limit {
			break
		}
		if blank {
			b.WriteByte(' ')
			n++
		}
		b.WriteRune(r)
		blank = false
		n++
	}
	return b.String()
}

// Bracket returns "[kind: detail]", which stands in a text for what is no text. The detail is
// foreign and can't end the bracket.
func Bracket(kind, detail string) string {
	const most = 200 // runes
	detail = strings.NewReplacer("[", "(", "]", ")").Replace(Clean(detail, most))
	if detail == "" {
		return "[" + kind + "]"
	}
	return "[" + kind + ": " + detail + "]"
}

// WithoutMention returns text without the mention text[start:end] and what sets it off from the
// rest: the blanks and the comma around it.
func WithoutMention(text string, start, end int) string {
	left, right := text[:start], text[end:]
	switch {
	case strings.TrimSpace(left) == "":
		return strings.TrimLeft(right, " \t\n,:;")
	case strings.HasSuffix(left, "\n"):
		return left + strings.TrimLeft(right, " ")
	}
	return strings.TrimRight(left, " ") + right
}

// SenderName names a sender for a person to read.
func SenderName(s bus.Sender) string {
	name := strings.Join(strings.Fields(s.Name), " ")
	return cmp.Or(Clip(name, 64), "Somebody without a name")
}

// Clip returns the beginning of s, of at most n runes.
func Clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
