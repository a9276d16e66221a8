package screen

import tea "charm.land/bubbletea/v2"

// key handles a key. What asks the person something comes first: the question at the end, then the
// search in the history.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.Keystroke()
	switch {
	case m.leaving:
		m.decide(name)
		return nil
	case m.finding != nil:
		if m.find(name, msg.Text) {
			return nil
		}
	case name == "tab" || name == "shift+tab":
		m.tab(name == "shift+tab")
		return nil
	}
	switch name {
	case "enter", "kpenter":
		if m.continued() {
			return nil
		}
		return m.send()
	case "ctrl+c":
		m.interrupt()
		return nil
	case "ctrl+d":
		if len(m.editor.text) == 0 {
			m.leave()
			return nil
		}
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+r":
		m.finding = &finding{before: len(m.history.entries), kept: m.editor}
		return nil
	case "up", "ctrl+p":
		m.up(1)
		return nil
	case "down", "ctrl+n":
		m.up(-1)
		return nil
	}
	if !m.edit(name) && msg.Text != "" {
		m.editor.insert(msg.Text, false)
	}
	m.suggest()
	return nil
}

// interrupt stops the running answer and keeps the typed text. Without an answer it deletes the
// text, and without a text it ends the chat.
func (m *Model) interrupt() {
	switch {
	case m.talk.isAnswerPending():
		m.say(stop, false)
	case len(m.editor.text) > 0:
		m.editor.set("")
		m.suggest()
	default:
		m.leave()
	}
}

// decide handles the answer to the question whether the gateway should continue.
func (m *Model) decide(key string) {
	switch key {
	case "y", "1", "enter":
		m.end = outcome{wanted: true, stay: true}
	case "n", "2", "ctrl+d", "ctrl+c":
		m.end = outcome{wanted: true}
	case "esc":
		m.leaving = false
	}
}
