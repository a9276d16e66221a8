package agent

import (
	"context"

	"gateway/agent/llm"
)

// settings are the present ones, and the model for notes. They don't change: others take their
// place.
type settings struct {
	Settings
	notes llm.Model
}

// config returns the present settings.
func (c *choices) config() *settings { return c.current.Load() }

// StopTask ends the sub-agent that works in a session, and reports whether there was one.
func (d *Dispatcher) StopTask(ctx context.Context, key string) (stopped bool, err error) {
	return d.stops.stopTask(ctx, key)
}

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
