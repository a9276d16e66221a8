package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"gateway/agent/turn"
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
func (d *Dispatcher) configOf(key session.Key) *turn.Settings {
	s := d.config()
	c := s.choice(d.chosen(key))
	if c == nil || c.ID == s.ModelID { // that one knows already which of its chain has failed
		return &s.Settings.Settings
	}
	return s.With(c)
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
func (s *settings) choice(name string) *turn.Choice {
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b }, strings.EqualFold,
	} {
		i := slices.IndexFunc(s.Choices, func(c turn.Choice) bool { return same(c.ID, name) })
		if i >= 0 {
			return &s.Choices[i]
		}
	}
	return nil
}
