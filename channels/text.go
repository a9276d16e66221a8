package channels

import (
	"cmp"
	"fmt"
	"mime"
	"runtime"
	"strings"
	"unicode"

	"gateway/bus"
	"gateway/store/plaintext"
)

// MaxName is the maximum length, in runes, of the name of a person, a chat or a file.
const MaxName = 128

// MIMEType returns the MIME type that a sender claims, without parameters, or "" if it is none. On
// some platforms it is any text, and the model sees it beside the text of the gateway.
func MIMEType(s string) string {
	t, _, err := mime.ParseMediaType(s)
	if err != nil || !strings.Contains(t, "/") || len(t) > MaxName {
		return ""
	}
	return t
}

// Clean makes untrusted text safe for a prompt or a log: one line of at most limit runes. Control
// characters and line breaks become blanks. Invisible characters, characters that change the
// direction of writing, and invalid UTF-8 are removed. The two joiners stay, because some scripts
// and emoji need them.
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

// Placeholder returns "[kind: detail]", which stands for something that is not text. detail is
// untrusted and can't close the bracket.
func Placeholder(kind, detail string) string {
	const most = 200 // maximum number of runes
	detail = strings.NewReplacer("[", "(", "]", ")").Replace(Clean(detail, most))
	if detail == "" {
		return "[" + kind + "]"
	}
	return "[" + kind + ": " + detail + "]"
}

// List returns the text that stands for a list, such as a poll: its kind and title, and a line for
// each item.
func List(kind, title string, items []string) string {
	const most, longest = 32, 2000 // as much as any platform allows, and runes
	text := Placeholder(kind, title)
	for _, item := range items[:min(len(items), most)] {
		text += "\n- " + Clean(item, longest)
	}
	return text
}

// WithoutMention returns text without the mention text[start:end] and the blanks and punctuation
// around it.
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

// SenderName returns the name of a sender, for people.
func SenderName(s bus.Sender) string {
	name := strings.Join(strings.Fields(s.Name), " ")
	return cmp.Or(plaintext.Shorten(name, 64), "Somebody without a name")
}

// Refusal returns the reason in text, the text of an error, for people. If the error wraps
// [ErrRefused], that is the platform's reason; otherwise it is the whole text.
func Refusal(text string) string {
	if _, reason, ok := strings.Cut(text, ErrRefused.Error()+": "); ok {
		text = reason
	}
	return Clean(strings.TrimRight(text, "."), 200)
}

// PanicText describes a panic for the log. If the value is not an error of Go's runtime, it returns
// only the type, because the text may contain messages of people.
func PanicText(p any) string {
	if e, ok := p.(runtime.Error); ok {
		return e.Error()
	}
	return fmt.Sprintf("%T", p)
}
