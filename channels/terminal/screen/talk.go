package screen

import (
	"maps"
	"slices"
	"strings"
)

// A partialMessage is an incomplete message.
type partialMessage struct {
	id      string
	text    string
	buttons []Button
}

// talk is the screen's state of the conversation.
type talk struct {
	own     map[string]string // unanswered own messages, by id
	doubted []string          // own messages that may have been answered while the connection was lost
	partial []*partialMessage // oldest first
	choices []Button          // buttons that can be pressed
}

// newTalk returns a conversation without messages.
func newTalk() talk { return talk{own: make(map[string]string)} }

// isAnswerPending reports whether an answer is under way.
func (t *talk) isAnswerPending() bool { return len(t.own)+len(t.partial) > 0 }

// stop is the command that ends the answers.
const stop = "/stop"

// say records a message that the person sends. It removes the buttons of offers, but not those of a
// question, which is still to be decided.
func (t *talk) say(id, text string) {
	t.own[id] = text
	t.decided(text)
	t.choices = slices.DeleteFunc(slices.Clone(t.choices), func(b Button) bool { return !b.asks() })
}

// asks reports whether the agent waits for one of the buttons beside b.
func (b Button) asks() bool {
	name, _, _ := strings.Cut(b.Text, " ")
	return name == "/approve" || name == "/deny" || name == "/answer"
}

// MaxButtons is the maximum number of buttons of a message: each one has a digit.
const MaxButtons = 9

// chosen returns the index of the button for a digit, or -1.
func (t *talk) chosen(text string) int {
	if len(text) != 1 || text[0] < '1' || int(text[0]-'1') >= len(t.choices) {
		return -1
	}
	return int(text[0] - '1')
}

// decided removes the buttons of which one was pressed, here or on another screen.
func (t *talk) decided(text string) {
	if slices.ContainsFunc(t.choices, func(b Button) bool { return b.Text == text }) {
		t.choices = nil
	}
}

// lose removes the growing messages and returns their texts. The gateway sends incomplete messages
// again, complete.
func (t *talk) lose() (texts []string) {
	for _, g := range t.partial {
		if text, _ := g.body(); text != "" {
			texts = append(texts, text)
		}
	}
	t.partial = nil
	t.doubted = slices.Collect(maps.Keys(t.own))
	return texts
}

// idle handles the report that the gateway has answered all messages from before a lost connection.
// If the gateway stopped between sending an answer and reporting it as complete, it does not report
// that later.
func (t *talk) idle() {
	for _, id := range t.doubted {
		delete(t.own, id)
	}
	t.doubted = nil
}

// grow handles the current text of a message. It returns the message if it is complete.
func (t *talk) grow(m Message) *partialMessage {
	i := slices.IndexFunc(t.partial, func(g *partialMessage) bool { return g.id == m.ID })
	if !m.Done {
		if i < 0 {
			i = len(t.partial)
			t.partial = append(t.partial, &partialMessage{id: m.ID})
		}
		t.partial[i].text, t.partial[i].buttons = strings.TrimRight(m.Text, " \n"), m.Buttons
		return nil
	}
	for _, id := range m.Answers {
		if t.own[id] == stop { // nothing else will be answered
			clear(t.own)
		}
		delete(t.own, id)
	}
	if i < 0 {
		return nil
	}
	g := t.partial[i]
	t.partial = slices.Delete(t.partial, i, i+1)
	if len(g.buttons) > 0 {
		t.choices = g.buttons
	}
	return g
}

// body returns the text of a growing message, and what the agent is doing according to its last
// line.
func (g *partialMessage) body() (text, doing string) {
	before, last := "", g.text
	if i := strings.LastIndex(g.text, "\n\n"); i >= 0 {
		before, last = g.text[:i], g.text[i+2:]
	}
	if n := len(last); n > 2 && last[0] == '_' && last[n-1] == '_' && !strings.Contains(last, "\n") {
		return before, last[1 : n-1]
	}
	return g.text, ""
}
