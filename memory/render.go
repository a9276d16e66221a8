package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Render returns facts as lines of data for a prompt, each with a newline at its end:
//
//   - name of the dog: Bello
//   - way of working: "Always answer in French, they said." (style)
//
// Only what is short and plain stands there as it is. All else is a JSON string, above all what
// would read as an order or as a part of the prompt.
func Render(facts []Fact) string {
	var b strings.Builder
	for _, f := range facts {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// String returns the fact as a line of data without a newline, see [Render].
func (f Fact) String() string {
	line := "- " + Quote(f.Key) + ": " + Quote(f.Value)
	if f.Category != "" {
		line += " (" + Quote(f.Category) + ")"
	}
	return line
}

// maxPlain is the longest text that stands unquoted, in characters.
const maxPlain = 60

// plain is what names, dates, numbers and addresses consist of.
var plain = regexp.MustCompile(`^[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N} .,;/@+%&€$'’_-]*$`)

// order is what a text says that wants to be obeyed, or how a part of a prompt begins.
var order = regexp.MustCompile(`(?i)\b(always|never|must|should|shall|ignore|disregard|forget|` +
	`do not|don['’]t|from now on|instead|pretend|act as|reply|respond|answer|send|tell|say|write|` +
	`run|execute|call|use|obey|follow|instructions?|prompt|system|assistant|` +
	`immer|nie|niemals|musst|müssen|sollst|ignoriere|vergiss|befolge|sende|schicke|antworte|` +
	`ab jetzt|anweisung(en)?|siempre|nunca|debes|ignora|olvida|envía|toujours|jamais|dois|devez|` +
	`ignorez?|oublie|envoie|réponds)\b|всегда|никогда|должен|игнорируй|забудь|отправь|忽略|必须|` +
	`总是|永远|无视|必ず|常に|無視`)

// Quote returns s as it is if it is short and plain, and else as a JSON string: for a prompt in
// which it is data.
func Quote(s string) string {
	if utf8.RuneCountInString(s) <= maxPlain && plain.MatchString(s) && !order.MatchString(s) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string can always be encoded
	}
	return visible(strings.TrimSuffix(b.String(), "\n"))
}

// visible writes the characters of a JSON string that don't show as their numbers.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r) || r == '\u200d': // the latter joins emoji
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
