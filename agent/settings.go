package agent

import (
	"cmp"

	"gateway/agent/llm"
)

// settings are the options as they are now, and the models. They don't change: others take their
// place.
type settings struct {
	Options
	model, notes llm.Model
}

// config returns the present settings.
func (d *Dispatcher) config() *settings { return d.current.Load() }

// config returns the settings of t. A turn keeps those with which it began.
func (t *turn) config() *settings {
	if t.settings == nil {
		t.settings = t.d.configOf(t.Session)
	}
	return t.settings
}

// Configure replaces the models, and takes over of opts what can change while the dispatcher runs:
// everything about models, rounds and times of a turn, queues, rules and their approval, notes and
// Dream. Turns under way end with what they began with. A nil notes is model.
func (d *Dispatcher) Configure(model, notes llm.Model, opts *Options) {
	n := *opts
	n.setDefaults()
	s := *d.config()
	s.model, s.notes = model, notes
	if notes == nil {
		s.notes = model
	}
	s.ModelName, s.ModelID, s.NotesID = n.ModelName, n.ModelID, n.NotesID
	s.Heartbeat, s.Choices = n.Heartbeat, n.Choices
	s.ContextWindow, s.MaxOutput, s.NoImages = n.ContextWindow, n.MaxOutput, n.NoImages
	s.MaxRounds, s.MaxTaskRounds, s.TurnTimeout = n.MaxRounds, n.MaxTaskRounds, n.TurnTimeout
	s.QueueMode, s.Waiting, s.Debounce = n.QueueMode, n.Waiting, n.Debounce
	s.IdleAfter, s.DreamEvery = n.IdleAfter, n.DreamEvery
	s.Rules, s.Approver, s.ApprovalTime = n.Rules, n.Approver, n.ApprovalTime
	s.SpeechCost = n.SpeechCost
	d.current.Store(&s)
	d.background.Wake() // what is due may be another now
}

// A Choice is a model, with what must be known of it.
type Choice struct {
	Model         llm.Model
	Name          string // shown by /status
	ID            string // as prices know it
	ContextWindow int    // tokens
	MaxOutput     int    // tokens; 0: the provider decides
	NoImages      bool   // it does not understand images
}

// with returns s with another model for answers.
func (s settings) with(c *Choice) *settings {
	s.model, s.ModelName, s.ModelID = c.Model, c.Name, c.ID
	s.ContextWindow = cmp.Or(c.ContextWindow, s.ContextWindow)
	s.MaxOutput, s.NoImages = c.MaxOutput, c.NoImages
	return &s
}

// contextBudget is how many tokens a prompt may have, so that there is room for the answer and for
// what an estimate is wrong by.
func (s *settings) contextBudget() int {
	const (
		answer = 8192 // where only the provider knows
		error  = 1024
	)
	window := s.ContextWindow
	return max(window-cmp.Or(s.MaxOutput, min(answer, window/4))-min(error, window/8), 1)
}
