package pool

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gateway/agent/activity"
	"gateway/agent/llm"
	"gateway/agent/turn"
	"gateway/session"
	"gateway/store"
)

// The configuration names the model that answers. An admin may choose another one for a
// conversation; its sub-agents use that one, too. Jobs, hooks and heartbeats in sessions of their
// own, notes and Dream keep the configured model.

// choices holds the current settings and what people have chosen for conversations instead.
type choices struct {
	current atomic.Pointer[Snapshot]

	mu     sync.Mutex
	chosen map[session.Key]session.Choices // only sessions with a choice
}

// ReloadChoices reads the stored choices, at the start and after another process has erased some.
func (c *choices) ReloadChoices(q store.Queryer) error {
	// A choice is stored before Choose is called. The lock keeps this call from replacing a newer
	// choice with what it has read before.
	c.mu.Lock()
	defer c.mu.Unlock()
	chosen, err := session.Chosen(q)
	if err != nil {
		return err
	}
	for key, own := range chosen {
		mode, err := parseMode(own[session.QueueMode])
		if own[session.QueueMode] = string(mode); err != nil { // the configured mode applies
			delete(own, session.QueueMode)
		}
		if len(own) == 0 {
			delete(chosen, key)
		}
	}
	c.chosen = chosen
	return nil
}

// Mode returns the queue mode of a session.
func (c *choices) Mode(key session.Key) Mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(Mode(c.chosen[key][session.QueueMode]), c.Config().QueueMode)
}

// Choose changes a choice of a session. "" restores the configured value.
func (c *choices) Choose(key session.Key, what session.Choice, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.chosen[key]
	if own == nil {
		own = make(session.Choices)
	}
	if own[what] = value; value == "" {
		delete(own, what)
	}
	if c.chosen[key] = own; len(own) == 0 {
		delete(c.chosen, key)
	}
}

// Forget removes all choices of a session.
func (c *choices) Forget(key session.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.chosen, key)
}

// Move moves the choices of a session to another session, which keeps the choices that it already
// has.
func (c *choices) Move(from, to session.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.chosen[from]
	if !ok {
		return
	}
	maps.Copy(own, c.chosen[to])
	c.chosen[to] = own
	delete(c.chosen, from)
}

// Has reports whether a session has a choice.
func (c *choices) Has(key session.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.chosen[key]) > 0
}

// Chosen returns the chosen value for a session, or "". A job that runs beside a suspended
// conversation uses the conversation's choices.
func (c *choices) Chosen(key session.Key, what session.Choice) string {
	key = choiceOwner(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chosen[key][what]
}

// choiceOwner returns the conversation whose choices apply to a session.
func choiceOwner(key session.Key) session.Key {
	key.Task, key.Run = "", 0
	return key
}

// ConfigOf returns the current settings of a session. A chosen model that is no longer configured
// is ignored.
func (c *choices) ConfigOf(key session.Key) *turn.Settings {
	s := c.Config()
	settings := &s.Settings.Settings
	chosen := s.choice(c.Chosen(key, session.Model))
	if chosen != nil {
		own := *settings
		// The default model remembers which models of its fallback chain have failed.
		if chosen.ID != s.ModelID {
			own = *s.With(chosen)
		}
		own.Chosen.Model = true
		settings = &own
	}
	effort := llm.Effort(c.Chosen(key, session.Effort))
	voice, shows := c.Chosen(key, session.Voice), c.Chosen(key, session.Activity)
	if effort == llm.EffortDefault && voice == "" && shows == "" {
		return settings
	}
	own := *settings
	own.Effort = cmp.Or(effort, own.Effort)
	own.Chosen.Voice, own.Chosen.Activity = voice, activity.Mode(shows)
	own.Voice = cmp.Or(own.Chosen.Voice, own.Voice)
	own.Activity = cmp.Or(own.Chosen.Activity, own.Activity)
	return &own
}

// choice returns the model with the given name, or nil. Case matters only if names differ in
// nothing else.
func (s *Snapshot) choice(name string) *turn.Choice {
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
