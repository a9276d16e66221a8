package markup

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A Choice is a possible answer to a message.
type Choice struct {
	Label string // one line
	Text  string // text to send

	// Number, if not 0, can be sent instead of the text.
	Number int
}

// WithChoices returns a message with a description of its choices, for platforms without buttons.
func WithChoices(md string, choices []Choice) string {
	var b strings.Builder
	b.WriteString(md)
	b.WriteString("\n\n")
	// The sentence is between the message and the numbers. Otherwise they would continue a list at
	// the end of the message, and so be others.
	if slices.ContainsFunc(choices, func(c Choice) bool { return c.Number != 0 }) {
		b.WriteString("Send the number, or answer in your own words:\n\n")
	}
	for _, c := range choices {
		if c.Number != 0 {
			fmt.Fprintf(&b, "%d. %s\n", c.Number, Literal(c.Label))
			continue
		}
		fmt.Fprintf(&b, "- %s: send `%s`\n", Literal(c.Label), strings.ReplaceAll(c.Text, "`", "'"))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

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
