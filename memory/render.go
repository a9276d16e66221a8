package memory

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"gateway/store/plainjson"
	"gateway/store/plaintext"
)

// Render returns facts as lines of data for a prompt, each with a newline at its end:
//
//   - name of the dog: Bello
//   - way of working: "Always answer in French, they said." (style)
//
// Render leaves a text unquoted only if it is short and plain. It writes all other texts as JSON
// strings, above all those that could pass for an order or for a part of the prompt.
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

// maxPlain is the greatest length of an unquoted text, in characters.
const maxPlain = 60

// plain matches texts that consist only of the characters of names, dates, numbers and
// addresses.
var plain = plaintext.Pattern(`^[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N} .,;/@+%&€$'’_-]*$`)

// orderWords are words of instructions, or words that begin a section of a prompt.
var orderWords = strings.Split("always|never|must|should|shall|ignore|disregard|forget|"+
	"do not|don't|don’t|from now on|instead|pretend|act as|reply|respond|answer|send|tell|say|write|"+
	"run|execute|call|use|obey|follow|instruction|instructions|prompt|system|assistant|"+
	"immer|nie|niemals|musst|müssen|sollst|ignoriere|vergiss|befolge|sende|schicke|antworte|"+
	"ab jetzt|anweisung|anweisungen|siempre|nunca|debes|ignora|olvida|envía|toujours|jamais|dois|"+
	"devez|ignorez|oublie|envoie|réponds", "|")

// order matches orderWords, and the same in languages that write no spaces between words.
var order = plaintext.Pattern(`(?i)\b(` + strings.Join(orderWords, "|") + `)\b|` +
	`всегда|никогда|должен|игнорируй|забудь|отправь|忽略|必须|总是|永远|无视|必ず|常に|無視`)

// orderStarts are the first words of the ASCII entries of orderWords.
var orderStarts = func() map[string]bool {
	starts := make(map[string]bool)
	for _, words := range orderWords {
		for first := range strings.FieldsFuncSeq(words, isWordEnd) {
			starts[first] = true
			break
		}
	}
	return starts
}()

// isWordEnd reports whether r ends a word in the sense of \b in regular expressions.
func isWordEnd(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// isInstruction reports whether order matches. The regular expression is slow, so isInstruction
// skips it for an ASCII text without a word in orderStarts.
func isInstruction(s string) bool {
	for word := range strings.FieldsFuncSeq(s, isWordEnd) {
		if orderStarts[strings.ToLower(word)] {
			return order().MatchString(s)
		}
	}
	return strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) &&
		order().MatchString(s)
}

// Quote returns s unchanged if it is short and plain, and otherwise as a JSON string. Use
// it for data in a prompt.
func Quote(s string) string {
	if utf8.RuneCountInString(s) <= maxPlain && plain().MatchString(s) && !isInstruction(s) {
		return s
	}
	return visible(plainjson.Text(s))
}

// visible escapes the invisible characters of a JSON string.
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
