package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
)

// Commands about what the agent knows. Each is about the scope of the conversation that it comes
// from, and shows nothing of another.

// later has a chore answer a command.
func (d *Dispatcher) later(c *call, w background.Work, state string) (Say, error) {
	work := background.Task{Work: w, State: []byte(state), Tell: tellOf(c.message)}
	c.after = d.ringChores
	return Say{Later: true}, d.chores.Put(c.tx, work, d.opts.Now())
}

// compactNow answers /compact.
func (d *Dispatcher) compactNow(c *call) (Say, error) {
	return d.later(c, background.Work{Kind: background.Compact, Scope: scopeOf(c.message),
		Session: string(c.key), Ref: c.seq}, "")
}

// dreamNow answers /dream. What has not become notes yet is not looked at.
func (d *Dispatcher) dreamNow(c *call) (Say, error) {
	return d.later(c, background.Work{Kind: background.Dream, Scope: scopeOf(c.message)}, "")
}

// dreamRestore answers /dream-restore ID. In a group it changes what all of it have.
func (d *Dispatcher) dreamRestore(c *call) (Say, error) {
	switch {
	case c.message.Group && !c.message.Role.AtLeast(bus.Admin):
		return Say{Text: "In a group only who is an admin or more may use `/dream-restore`."}, nil
	case c.args == "":
		return Say{Text: "Say which change: `/dream-log` lists them, `/dream-restore ID` takes one " +
			"back."}, nil
	}
	return d.later(c, background.Work{Kind: background.Undo, Scope: scopeOf(c.message), Ref: c.seq},
		c.args)
}

// lookAtMemory reads the documents of the scope for /memory.
func (d *Dispatcher) lookAtMemory(_ context.Context, c *call) error {
	if d.Documents == nil {
		return nil
	}
	var b strings.Builder
	for _, name := range []string{document.User, document.Memory, document.Soul} {
		doc := d.Documents.In(scopeOf(c.message)).Doc(name)
		if text := doc.Prompt(); text != "" {
			fmt.Fprintf(&b, "**%s**\n\n%s\n\n", name, clip(text, maxShown))
		}
	}
	c.looked = b.String()
	return nil
}

// maxShown is how much of a document /memory shows, in bytes.
const maxShown = 2000

// sayMemory answers /memory.
func (d *Dispatcher) sayMemory(c *call) (Say, error) {
	const most = 50
	space := d.Memory.In(scopeOf(c.message))
	facts, err := space.Facts(c.tx, "", most)
	if err != nil {
		return Say{}, err
	}
	last, err := space.Last(c.tx)
	if err != nil {
		return Say{}, err
	}
	text := c.looked
	if len(facts) > 0 {
		text += "**Facts**\n\n" + strings.TrimSpace(memory.Render(facts)) + "\n\n"
	}
	if text == "" && last == 0 {
		return Say{Text: "I don't know anything for longer than this conversation yet."}, nil
	}
	return Say{Text: text + fmt.Sprintf("I have %s of earlier conversations: `/history`. "+
		"`/forget me` erases all of it.", count(int(last), "note"))}, nil
}

// sayHistory answers /history.
func (d *Dispatcher) sayHistory(c *call) (Say, error) {
	const most = 10
	entries, err := d.Memory.In(scopeOf(c.message)).Newest(c.tx, 0, most)
	if err != nil {
		return Say{}, err
	}
	if len(entries) == 0 {
		return Say{Text: "There are no notes of earlier conversations yet. They are made when a " +
			"conversation gets long, rests, or ends with `/new`."}, nil
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "**%s**\n\n%s\n\n", e.Time.In(d.opts.Location).Format(time.DateOnly),
			clip(e.Text, maxShown/2))
	}
	return Say{Text: strings.TrimSpace(b.String())}, nil
}

// lookAtSkills lists the skills for /skills.
func (d *Dispatcher) lookAtSkills(_ context.Context, c *call) error {
	if d.Skills == nil {
		return nil
	}
	var b strings.Builder
	for _, s := range d.Skills.List(string(scopeOf(c.message))) {
		state := ""
		switch {
		case s.Problem != "":
			state = " (can't be used: " + s.Problem + ")"
		case s.Disabled:
			state = " (switched off)"
		case len(s.Missing) > 0:
			state = " (lacks " + strings.Join(s.Missing, ", ") + ")"
		}
		fmt.Fprintf(&b, "- `$%s`%s: %s\n", s.Name, state, firstSentence(s.Description))
	}
	c.looked = b.String()
	return nil
}

// firstSentence returns what a description begins with.
func firstSentence(s string) string {
	const most = 200
	if first, _, ok := strings.Cut(s, ". "); ok {
		s = first + "."
	}
	if len(s) > most {
		s = clip(s, most) + "…"
	}
	return s
}

// sayLooked answers with what was looked up.
func (d *Dispatcher) sayLooked(c *call) (Say, error) { return Say{Text: c.looked}, nil }

// saySkills answers /skills.
func (d *Dispatcher) saySkills(c *call) (Say, error) {
	if c.looked == "" {
		return Say{Text: "There are no skills."}, nil
	}
	return Say{Text: c.looked + "\nName one in a message, as in `$summarize`, and I follow it."}, nil
}
