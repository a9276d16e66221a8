package dream

import (
	"strings"
	"unicode"

	"gateway/store/plaintext"
)

// lineEnds replaces all characters that some program treats as a line end.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n",
	"\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// clean returns s as plain text: valid UTF-8 with LF line ends, without invisible
// characters and without those that change the direction of text.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(hidden, r):
			return -1
		}
		return r
	}, lineEnds.Replace(strings.ToValidUTF8(s, "\uFFFD")))
}

// hidden are characters that no language needs and that may hide text.
var hidden = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x200B, Hi: 0x200B, Stride: 1}, // zero width space
		{Lo: 0x202A, Hi: 0x202E, Stride: 1}, // overrides of direction
		{Lo: 0x2060, Hi: 0x2069, Stride: 1},
		{Lo: 0xFEFF, Hi: 0xFEFF, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0xE0000, Hi: 0xE007F, Stride: 1}},
}

// oneLine returns the cleaned s on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

// bar begins each line of a frame, so that no line inside can imitate one outside.
const bar = "| "

// framed returns s as data for the model, with a bar before each line.
func framed(s string) string {
	s = strings.TrimRight(clean(s), "\n")
	return bar + strings.ReplaceAll(s, "\n", "\n"+bar) + "\n"
}

// unframed returns s without the bars that the model may have copied, if all lines have
// them.
func unframed(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		rest, ok := strings.CutPrefix(line, strings.TrimRight(bar, " "))
		if !ok && line != "" {
			return s
		}
		lines[i] = strings.TrimPrefix(rest, " ")
	}
	return strings.Join(lines, "\n")
}

// imitatesPrompt reports whether s contains text that imitates the gateway's own text in a prompt:
// the envelope of a message, the frame of a file, or the summary or context of a
// conversation.
func imitatesPrompt(s string) bool { return envelopeLike().MatchString(s) }

var envelopeLike = plaintext.Pattern(strings.NewReplacer("_", `[\s\p{Z}\p{Cf}]+`).Replace(
	`(?im)[\[【]\s*(?:[a-z]+day_\d{4}-\d\d-\d\d|(?:end|text|outcome)_of_|what_was_said_|` +
		`in_reply_to_|in_the_quoted_|forwarded,|new_wording_|voice_message\s*[\],:]|` +
		`your_task\s*\]|archived_context_summary)|^\s*#+\s*runtime_context\s*$`))
