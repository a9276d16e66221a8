package markup

import (
	"fmt"
	"strings"
)

// A Choice is something that the reader of a message may send as an answer.
type Choice struct {
	Label string // one line
	Text  string // what is sent

	// Number, if it is not 0, may be sent instead of the text.
	Number int
}

// WithChoices returns a message with a description of its choices, for people who see no buttons.
func WithChoices(md string, choices []Choice) string {
	var b strings.Builder
	b.WriteString(md)
	b.WriteString("\n\n")
	end := ""
	for _, c := range choices {
		if c.Number != 0 {
			fmt.Fprintf(&b, "%d. %s\n", c.Number, Literal(c.Label))
			end = "\nSend the number, or answer in your own words."
			continue
		}
		fmt.Fprintf(&b, "- %s: send `%s`\n", Literal(c.Label), strings.ReplaceAll(c.Text, "`", "'"))
	}
	return strings.TrimSuffix(b.String()+end, "\n")
}
