package screen

import (
	"slices"
	"strings"
)

// A growing message is not complete.
type growing struct {
	id      string
	text    string
	earlier bool // it grew before something newer was said
	buttons []Button
}

// talk is what the screen knows of the conversation.
type talk struct {
	own     map[string]bool // messages said that are not known to be taken
	asked   bool            // something was said, or an answer grows: none is complete since
	grows   []*growing
	choices []Button // of the last complete message
}

func newTalk() talk { return talk{own: make(map[string]bool)} }

// waits reports whether something said has no answer yet.
func (t *talk) waits() bool { return t.asked || len(t.own) > 0 }

func (t *talk) say(id string) {
	t.own[id], t.asked, t.choices = true, true, nil
	for _, g := range t.grows {
		g.earlier = true
	}
}

func (t *talk) taken(id string) { delete(t.own, id) }

// lose forgets what grows: the gateway sends it again, whole.
func (t *talk) lose() { t.grows = nil }

// grow takes what a message says now. It returns the message if that is complete.
func (t *talk) grow(m Message) *growing {
	i := slices.IndexFunc(t.grows, func(g *growing) bool { return g.id == m.ID })
	if !m.Done {
		if i < 0 {
			i = len(t.grows)
			t.grows = append(t.grows, &growing{id: m.ID})
		}
		g := t.grows[i]
		g.text, g.buttons = strings.TrimRight(m.Text, " \n"), m.Buttons
		t.asked = t.asked || !g.earlier
		return nil
	}
	if i < 0 {
		return nil
	}
	g := t.grows[i]
	t.grows = slices.Delete(t.grows, i, i+1)
	t.asked = t.asked && g.earlier
	t.choices = g.buttons
	return g
}

// body returns what a growing message says, and what its last line says that the agent is doing.
func (g *growing) body() (text, doing string) {
	before, last := "", g.text
	if i := strings.LastIndex(g.text, "\n\n"); i >= 0 {
		before, last = g.text[:i], g.text[i+2:]
	}
	if n := len(last); n > 2 && last[0] == '_' && last[n-1] == '_' && !strings.Contains(last, "\n") {
		return before, last[1 : n-1]
	}
	return g.text, ""
}
