package agent

import "gateway/agent/llm"

// settings are the present ones, and the model for notes. They don't change: others take their
// place.
type settings struct {
	Settings
	notes llm.Model
}

// config returns the present settings.
func (d *Dispatcher) config() *settings { return d.current.Load() }

// Configure replaces the models and settings. Turns under way end with what they began with. A nil
// notes is model.
func (d *Dispatcher) Configure(model, notes llm.Model, s Settings) {
	s.setDefaults()
	s.Model = model
	if notes == nil {
		notes = model
	}
	d.current.Store(&settings{s, notes})
	d.background.Wake() // what is due may be another now
}
