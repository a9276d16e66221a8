package screen

import (
	"bytes"
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"gateway/channels/markup"
)

// A terminal holds the properties of the terminal.
type terminal struct {
	width, height int
	method        ansi.Method // how the terminal counts columns
	profile       colorprofile.Profile
}

// The styles use the sixteen colours that every theme defines.
var (
	prompt  = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Cyan)
	title   = lipgloss.NewStyle().Bold(true)
	notice  = lipgloss.NewStyle().Faint(true)
	good    = lipgloss.NewStyle().Foreground(lipgloss.Green)
	warning = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	chosen  = lipgloss.NewStyle().Reverse(true)
)

// paint returns text in a style, line by line, without the padding that lipgloss adds to blocks.
func paint(style lipgloss.Style, text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = style.Render(l)
		}
	}
	return strings.Join(lines, "\n")
}

// wrap breaks text into rows that fit the screen.
func (l *terminal) wrap(text string) string { return l.method.Wrap(text, l.width-1, " ") }

// cut truncates a row to the screen's width.
func (l *terminal) cut(text string) string { return l.method.Truncate(text, l.width-1, "…") }

// Prompt is the beginning of the row into which a person types.
const Prompt = "› "

// room returns the width of the editor in columns.
func (l *terminal) room() int { return max(l.width-len([]rune(Prompt))-1, 1) }

// own returns a person's message as it is printed.
func (l *terminal) own(text string) string {
	var e editor
	e.set(text)
	rows, _, _ := e.view(l.room(), len(text)+1, l.method)
	const most = 12
	if n := len(rows); n > most {
		rows = append(rows[:most-1:most-1], paint(notice, fmt.Sprintf("… %d more lines", n-most+1)))
	}
	for i, r := range rows {
		rows[i] = "  " + r
	}
	rows[0] = prompt.Render(Prompt) + rows[0][2:]
	return strings.Join(rows, "\n")
}

// colored converts the colours of text to those of the terminal. Text printed above the program
// bypasses Bubble Tea's own conversion.
func (l *terminal) colored(text string) string {
	var b bytes.Buffer
	w := colorprofile.Writer{Forward: &b, Profile: l.profile}
	_, _ = w.WriteString(text) // a buffer never fails
	return b.String()
}

// answer returns an agent's message as it is printed.
func (l *terminal) answer(text string, buttons []Button) string {
	if len(buttons) > 0 {
		text = WithButtons(text, buttons)
	}
	return strings.TrimRight(markup.ANSI(text, l.width-1), "\n") + "\n"
}

// WithButtons returns a message with a description of its buttons.
func WithButtons(text string, buttons []Button) string {
	var list []markup.Choice
	for _, b := range buttons {
		list = append(list, markup.Choice(b))
	}
	return markup.WithChoices(text, list)
}

// most returns the maximum number of changing rows. The rest of the screen is for text that is
// printed above them in one piece.
func (l *terminal) most() int { return max(l.height*2/3, 3) }
