package agent

import "gateway/agent/llm"

// settings are the options as they are now, and the model for notes. They don't change: others take
// their place.
type settings struct {
	Options
	notes llm.Model
}

// config returns the present settings.
func (d *Dispatcher) config() *settings { return d.current.Load() }

// Configure replaces the models, and takes over of opts what can change while the dispatcher runs:
// everything about models, rounds and times of a turn, queues, rules and their approval, notes and
// Dream. Turns under way end with what they began with. A nil notes is model.
func (d *Dispatcher) Configure(model, notes llm.Model, opts *Options) {
	n := *opts
	n.setDefaults()
	s := *d.config()
	s.Settings, s.notes = n.Settings, notes
	s.Model = model
	if notes == nil {
		s.notes = model
	}
	s.NotesID, s.Choices = n.NotesID, n.Choices
	s.QueueMode, s.Waiting, s.Debounce = n.QueueMode, n.Waiting, n.Debounce
	s.IdleAfter, s.DreamEvery = n.IdleAfter, n.DreamEvery
	d.current.Store(&s)
	d.background.Wake() // what is due may be another now
}
