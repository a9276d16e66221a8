package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"gateway/agent/suggest"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// The configuration says which model answers, and an admin may choose another one for a
// conversation. Its sub-agents have that, too; jobs, hooks and heartbeats in sessions of their own,
// notes and Dream have what is configured for them.

// chosen returns the name of the model that was chosen for a session, "" if none was. What is due
// in a conversation, and works beside it only because that waits for somebody, has its model.
func (d *Dispatcher) chosen(key session.Key) string {
	for parent := key.Parent(); parent != ""; parent = key.Parent() {
		key = parent
	}
	key = cmp.Or(key.Beside(), key)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.models[key]
}

// configOf returns the present settings of a session. A model that was chosen and that the
// configuration does not know any more is as if it was not.
func (d *Dispatcher) configOf(key session.Key) *settings {
	s := d.config()
	c := s.choice(d.chosen(key))
	if c == nil || c.ID == s.ModelID { // that one knows already which of its chain has failed
		return s
	}
	return s.with(c)
}

// moveChoices gives what was chosen for a group to the one that it has become, before anything that
// comes from there is looked at.
func (d *Dispatcher) moveChoices(ctx context.Context, m bus.InboundMessage) error {
	from, to := m.From, m.From
	from.Chat, from.Thread, to.Thread = m.Before, "", ""
	before, key := session.KeyOf(from), session.KeyOf(to)
	d.mu.Lock()
	_, mode := d.modes[before]
	_, model := d.models[before]
	d.mu.Unlock()
	if m.Before == "" || !mode && !model {
		return nil
	}
	err := d.tx(ctx, func(tx *store.Tx) error {
		return d.sessions.MoveChoices(tx, from, to, d.opts.Now())
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	moveKey(d.modes, before, key)
	moveKey(d.models, before, key)
	return nil
}

// moveKey gives the value of a key to another one that has none.
func moveKey[V any](m map[session.Key]V, from, to session.Key) {
	v, ok := m[from]
	if _, has := m[to]; ok && !has {
		m[to] = v
	}
	delete(m, from)
}

// choice returns the model with a name, in any case if that is needed to find one; nil if there is
// none.
func (s *settings) choice(name string) *Choice {
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b }, strings.EqualFold,
	} {
		i := slices.IndexFunc(s.Choices, func(c Choice) bool { return same(c.ID, name) })
		if i >= 0 {
			return &s.Choices[i]
		}
	}
	return nil
}

// defaultWord is what stands for the model that the configuration names: "default", unless that is
// the name of another one.
func (s *settings) defaultWord() string {
	word := "default"
	for c := s.choice(word); c != nil && c.ID != s.ModelID; c = s.choice(word) {
		word = "the-" + word
	}
	return word
}

// lookAtModel finds out which model was chosen for the conversation.
func (d *Dispatcher) lookAtModel(_ context.Context, c *call) error {
	c.looked = d.chosen(c.key)
	return nil
}

// chooseModel answers /model [NAME].
func (d *Dispatcher) chooseModel(c *call) (Say, error) {
	s := d.config()
	switch {
	case c.args == "":
		return d.sayModels(c, s), nil
	case !c.message.Role.AtLeast(bus.Admin):
		return Say{Text: "Only who is an admin or more may choose the model. `/model` shows which " +
			"one answers here."}, nil
	case strings.EqualFold(c.args, s.defaultWord()):
		return d.setModel(c, "", fmt.Sprintf("The model of this conversation is the default again, "+
			"which is `%s` now.", s.ModelID))
	}
	found := s.choice(c.args)
	if found == nil {
		say := d.sayModels(c, s)
		hint := ""
		if name := suggest.Name(c.args, s.choiceNames()); name != "" {
			hint = fmt.Sprintf(" Did you mean `%s`?", name)
		}
		say.Text = fmt.Sprintf("I know no model `%s`.%s\n\n%s", clip(c.args, maxEcho), hint, say.Text)
		return say, nil
	}
	return d.setModel(c, found.ID, fmt.Sprintf("From its next answer on this conversation has the "+
		"model %s. `/model %s` takes that back.", found.shown(), s.defaultWord()))
}

// setModel has a conversation use a model from its next turn on.
func (d *Dispatcher) setModel(c *call, name, say string) (Say, error) {
	if err := d.sessions.SetModel(c.tx, c.message.From, name, d.opts.Now()); err != nil {
		return Say{}, err
	}
	c.after = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.models[c.key] = name; name == "" {
			delete(d.models, c.key)
		}
	}
	return Say{Text: say}, nil
}

// sayModels tells which model answers a conversation, and which others there are.
func (d *Dispatcher) sayModels(c *call, s *settings) Say {
	chosen := c.looked
	present, why := Choice{ID: s.ModelID, Name: s.ModelName}, "the default"
	found := s.choice(chosen)
	switch {
	case found != nil:
		present, why = *found, "chosen for this conversation; the default is `"+s.ModelID+"`"
	case chosen != "":
		why = "the default, as `" + chosen + "`, which was chosen for this conversation, is not " +
			"configured any more"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The model here is %s: %s.", present.shown(), why)
	admin := c.message.Role.AtLeast(bus.Admin)
	say := Say{}
	offer := func(name string) {
		// A longer one has to be written.
		if text := "/model " + name; admin && len(text) <= maxButtonText {
			say.Buttons = append(say.Buttons, bus.Button{Label: name, Text: text})
		}
	}
	for i := range s.Choices {
		if i == 0 {
			b.WriteString(" These can be chosen with `/model NAME`, by an admin:\n")
		}
		fmt.Fprintf(&b, "\n- %s", s.Choices[i].shown())
		if s.Choices[i].ID != present.ID {
			offer(s.Choices[i].ID)
		}
	}
	if chosen != "" {
		offer(s.defaultWord())
	}
	say.Text = b.String()
	return say
}

// maxButtonText is the longest text of a [bus.Button], in bytes.
const maxButtonText = 64

// shown describes a model for people.
func (c *Choice) shown() string {
	if c.Name == c.ID || c.Name == "" {
		return "`" + c.ID + "`"
	}
	if rest, ok := strings.CutPrefix(c.Name, c.ID); ok {
		return "`" + c.ID + "`" + rest
	}
	return fmt.Sprintf("`%s` (%s)", c.ID, c.Name)
}

// choiceNames returns the names of the models that can be chosen.
func (s *settings) choiceNames() (names []string) {
	for i := range s.Choices {
		names = append(names, s.Choices[i].ID)
	}
	return names
}
