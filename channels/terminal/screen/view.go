package screen

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"gateway/channels/markup"
)

// View implements [tea.Model].
func (m *Model) View() tea.View {
	if m.end.wanted {
		return tea.NewView("")
	}
	rows, cursor := m.layout()
	v := tea.NewView(strings.Join(rows, "\n"))
	v.Cursor = cursor
	return v
}

// layout returns the changing rows and the position of the cursor in them. Growing messages give
// way to the other rows.
func (m *Model) layout() ([]string, *tea.Cursor) {
	typed, row, column := m.editor.view(m.room(), max(min(10, m.height/3), 1), m.method)
	for i, text := range typed {
		typed[i] = "  " + text
	}
	typed[0] = prompt.Render(Prompt) + typed[0][2:]
	below := m.below()
	middle := m.middle()
	top := append(m.top(), middle...)
	// The oldest rows are cut off. The complete message is printed when it is done.
	top = top[max(0, len(top)+len(typed)+len(below)-m.most()):]
	cursor := tea.NewCursor(column+len([]rune(Prompt)), len(top)+row)
	return append(append(top, typed...), below...), cursor
}

// top returns the growing messages.
func (m *Model) top() (rows []string) {
	for _, g := range m.talk.partial {
		if text, _ := g.body(); text != "" {
			shown := strings.TrimRight(markup.ANSI(text, m.width-1), "\n")
			rows = append(rows, strings.Split(shown, "\n")...)
		}
	}
	return rows
}

// middle returns what the agent is doing, and its question to the person.
func (m *Model) middle() (rows []string) {
	switch {
	case m.offline != "":
		rows = append(rows, paint(warning, m.cut(m.offline)))
	case m.talk.isAnswerPending():
		rows = append(rows, paint(notice, m.cut(m.spinner.View()+" "+m.doing())))
	}
	if m.leaving {
		rows = append(rows, panel{m.terminal, m.state, m.opts.Owned}.question()...)
	}
	return append(rows, m.choices()...)
}

// choices returns the buttons, on one row if they fit.
func (m *Model) choices() (rows []string) {
	if len(m.talk.choices) == 0 {
		return nil
	}
	pressed := -1
	if !m.editor.literal() {
		pressed = m.talk.chosen(m.editor.value())
	}
	for i, b := range m.talk.choices {
		style := title
		if i == pressed {
			style = chosen
		}
		label := strings.Map(editable, strings.ReplaceAll(b.Label, "\n", " "))
		rows = append(rows, m.cut(style.Render(fmt.Sprintf("%d %s", i+1, label))))
	}
	rows = append(rows, paint(notice, "digit and Enter"))
	if row := strings.Join(rows, " · "); m.method.StringWidth(row) < m.width {
		return []string{row}
	}
	return rows
}

// doing says what the agent is doing, and since when.
func (m *Model) doing() string {
	doing := "thinking"
	if m.state != nil && m.state.Asks {
		doing = "waiting for you"
	}
	for _, g := range m.talk.partial {
		if _, now := g.body(); now != "" {
			doing = now
		} else if g.text != "" {
			doing = "writing"
		}
	}
	return fmt.Sprintf("%s · %s · Ctrl-C stops", doing,
		m.opts.Now().Sub(m.since).Truncate(time.Second))
}

// below returns the rows below the editor: the completions or the status line.
func (m *Model) below() (rows []string) {
	if f := m.finding; f != nil {
		text := "history: " + f.text
		if f.failed {
			text += " (not found)"
		}
		return []string{paint(notice, m.cut(text+" · Ctrl-R further back · Esc back"))}
	}
	if m.editor.literal() && strings.HasPrefix(strings.TrimSpace(m.editor.value()), "/") {
		return []string{paint(notice, m.cut("Pasted: Enter sends it as text · Tab makes it a command"))}
	}
	c := m.complete
	if c.prefix == "" || len(c.choices) == 0 || c.choices[0].text == c.prefix {
		return panel{m.terminal, m.state, m.opts.Owned}.status()
	}
	most := max(min(6, m.height/4), 1)
	first := 0
	// The chosen one stays near the middle of the list.
	if len(c.choices) > most {
		first = min(max(c.at-most/2, 0), len(c.choices)-most)
	}
	for i, choice := range c.choices[first:min(first+most, len(c.choices))] {
		text := m.cut(fmt.Sprintf("%-16s %s", choice.text, choice.help))
		if first+i == c.at {
			rows = append(rows, chosen.Render(text))
		} else {
			rows = append(rows, paint(notice, text))
		}
	}
	return rows
}
