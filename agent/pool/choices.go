package pool

import (
	"cmp"
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

// The configuration says which model answers. An admin may choose another one for a conversation,
// and its sub-agents follow. Jobs, hooks and heartbeats in sessions of their own, notes and Dream
// keep the configured model.

// choices holds the current settings, and the choices that replace them in conversations.
type choices struct {
	current atomic.Pointer[Snapshot]

	mu     sync.Mutex
	modes  map[session.Key]Mode   // of the sessions with a mode of their own
	models map[session.Key]string // names of models, likewise

	efforts map[session.Key]string // how long the models think, likewise
	voices  map[session.Key]string // when the answers are spoken, likewise

	activities map[session.Key]string // how much of the work is shown, likewise
}

// load reads the stored choices.
func (c *choices) load(q store.Queryer) error {
	chosen, err := session.Store{}.Chosen(q)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, name := range chosen.Modes {
		if mode, err := ParseMode(name); err == nil { // otherwise the configured mode applies
			c.modes[key] = mode
		}
	}
	c.models, c.efforts, c.voices = chosen.Models, chosen.Efforts, chosen.Voices
	c.activities = chosen.Activities
	return nil
}

// Mode returns the queue mode of a session.
func (c *choices) Mode(key session.Key) Mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, ok := c.modes[key]; ok {
		return m
	}
	return c.Config().QueueMode
}

// SetMode chooses a queue mode for a session.
func (c *choices) SetMode(key session.Key, m Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.modes[key] = m
}

// SetModel chooses a model for a session; "" removes the choice.
func (c *choices) SetModel(key session.Key, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.models[key] = id; id == "" {
		delete(c.models, key)
	}
}

// SetEffort chooses how long the model thinks in a session.
func (c *choices) SetEffort(key session.Key, e llm.Effort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.efforts[key] = string(e); e == llm.EffortDefault {
		delete(c.efforts, key)
	}
}

// SetVoice chooses when answers in a session are spoken; "" is as configured.
func (c *choices) SetVoice(key session.Key, when string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.voices[key] = when; when == "" {
		delete(c.voices, key)
	}
}

// SetActivity chooses how much of the work a session shows; "" is as configured.
func (c *choices) SetActivity(key session.Key, mode string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.activities[key] = mode; mode == "" {
		delete(c.activities, key)
	}
}

// Forget removes all choices of a session.
func (c *choices) Forget(key session.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.modes, key)
	delete(c.models, key)
	delete(c.efforts, key)
	delete(c.voices, key)
	delete(c.activities, key)
}

// Move moves the choices of a session to another one.
func (c *choices) Move(from, to session.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	moveKey(c.modes, from, to)
	moveKey(c.models, from, to)
	moveKey(c.efforts, from, to)
	moveKey(c.voices, from, to)
	moveKey(c.activities, from, to)
}

// Has reports whether anything was chosen for a session.
func (c *choices) Has(key session.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, mode := c.modes[key]
	_, model := c.models[key]
	_, effort := c.efforts[key]
	_, voice := c.voices[key]
	_, activity := c.activities[key]
	return mode || model || effort || voice || activity
}

// Chosen returns the name of the model that was chosen for a session, or "". A job that runs beside
// a suspended conversation uses the conversation's model.
func (c *choices) Chosen(key session.Key) string {
	key = chooser(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.models[key]
}

// Effort returns how long the model thinks in a session, by the same rule as Chosen.
func (c *choices) Effort(key session.Key) llm.Effort {
	key = chooser(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	return llm.Effort(c.efforts[key])
}

// shown returns the voice and the activity that were chosen for a session, by the same rule as
// Chosen.
func (c *choices) shown(key session.Key) (voice, shows string) {
	key = chooser(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.voices[key], c.activities[key]
}

// chooser returns the conversation whose choices apply to a session.
func chooser(key session.Key) session.Key {
	key.Task, key.Run = "", 0
	return key
}

// ConfigOf returns the current settings of a session. A chosen model that is no longer configured
// is ignored.
func (c *choices) ConfigOf(key session.Key) *turn.Settings {
	s := c.Config()
	settings := &s.Settings.Settings
	chosen := s.choice(c.Chosen(key))
	if chosen != nil {
		own := *settings
		// The default model remembers which models of its fallback chain have failed.
		if chosen.ID != s.ModelID {
			own = *s.With(chosen)
		}
		own.Chosen.Model = true
		settings = &own
	}
	effort := c.Effort(key)
	voice, shows := c.shown(key)
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

// moveKey moves the value of a key to another key that has no value.
func moveKey[V any](m map[session.Key]V, from, to session.Key) {
	v, ok := m[from]
	if _, has := m[to]; ok && !has {
		m[to] = v
	}
	delete(m, from)
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
