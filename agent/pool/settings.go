package pool

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/agent/turn"
	"gateway/bus"
)

// A Snapshot has the present settings, and the model for notes. It doesn't change: another one
// takes its place.
type Snapshot struct {
	Settings
	Notes llm.Model
}

// Set replaces the settings. Turns under way end with what they began with.
func (c *choices) Set(s Snapshot) { c.current.Store(&s) }

// Config returns the present settings.
func (c *choices) Config() *Snapshot { return c.current.Load() }

// A Mode says what happens to a message that comes while a turn of its session runs.
type Mode string

// The queue modes.
const (
	// Steer shows the message to the running turn at its next step.
	Steer Mode = "steer"
	// Followup answers it in a turn of its own afterwards.
	Followup Mode = "followup"
	// Collect answers all that came, in one turn afterwards.
	Collect Mode = "collect"
	// Interrupt ends the running turn and begins one with the new message.
	Interrupt Mode = "interrupt"
)

// ParseMode returns the mode with the given name in any case.
func ParseMode(name string) (Mode, error) {
	switch m := Mode(strings.ToLower(name)); m {
	case Steer, Followup, Collect, Interrupt:
		return m, nil
	}
	return "", fmt.Errorf("unknown queue mode %q: use steer, followup, collect or interrupt", name)
}

// CollectPause is how long nothing must come before a collecting session begins its turn.
const CollectPause = 500 * time.Millisecond

// Settings are the options that can change while the gateway runs.
type Settings struct {
	turn.Settings

	NotesID   string        // of Deps.Notes, as prices know it; default ModelID
	Choices   []turn.Choice // the models that a conversation may have instead; default none
	QueueMode Mode          // default Steer
	Waiting   int           // messages that may wait in a session; default 20

	// Debounce is how long an account waits for more of a message; default not at all.
	Debounce map[string]time.Duration

	// IdleAfter is the time without messages after which the older part of a conversation becomes
	// notes. DreamEvery is the time between two runs of Dream. 0 is never, for each.
	IdleAfter  time.Duration
	DreamEvery time.Duration
}

// SetDefaults replaces what is not set.
func (s *Settings) SetDefaults() {
	s.NotesID = cmp.Or(s.NotesID, s.ModelID)
	s.MaxRounds = cmp.Or(s.MaxRounds, 40)
	s.MaxTaskRounds = cmp.Or(s.MaxTaskRounds, 15)
	s.Approver = cmp.Or(s.Approver, bus.Admin)
	s.ApprovalTime = cmp.Or(s.ApprovalTime, 10*time.Minute)
	s.Timeout = cmp.Or(s.Timeout, 15*time.Minute)
	s.QueueMode = cmp.Or(s.QueueMode, Steer)
	s.Waiting = cmp.Or(s.Waiting, 20)
	s.ContextWindow = cmp.Or(s.ContextWindow, 65536)
}
