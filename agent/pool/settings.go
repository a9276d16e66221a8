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

// A Snapshot holds the settings and the model for notes at one time. It never changes; Set replaces
// it.
type Snapshot struct {
	Settings
	Notes llm.Model
}

// Set replaces the settings. Running turns keep the settings with which they began.
func (c *choices) Set(s Snapshot) { c.current.Store(&s) }

// Config returns the current settings.
func (c *choices) Config() *Snapshot { return c.current.Load() }

// A Mode says what happens to a message that arrives while a turn of its session runs.
type Mode string

// The queue modes.
const (
	// Steer shows the message to the running turn at its next step.
	Steer Mode = "steer"
	// Followup answers the message in a turn of its own afterwards.
	Followup Mode = "followup"
	// Collect answers all waiting messages together in one turn afterwards.
	Collect Mode = "collect"
	// Interrupt ends the running turn and begins one with the new message.
	Interrupt Mode = "interrupt"
)

// parseMode returns the mode with the given name in any case.
func parseMode(name string) (Mode, error) {
	switch m := Mode(strings.ToLower(name)); m {
	case Steer, Followup, Collect, Interrupt:
		return m, nil
	}
	return "", fmt.Errorf("unknown queue mode %q: use steer, followup, collect or interrupt", name)
}

// CollectPause is the time without new messages after which a session in Collect mode begins its
// turn.
const CollectPause = 500 * time.Millisecond

// Settings are the options that can change while the gateway runs.
type Settings struct {
	turn.Settings

	NotesID   string        // name of Deps.Notes in the price list; default ModelID
	Choices   []turn.Choice // models that people may choose for a conversation; default none
	QueueMode Mode          // default Steer
	Waiting   int           // maximum number of waiting messages in a session; default 20

	// Names are the agent's names in voice messages. In a group, a voice message that contains one
	// is for the agent; default none.
	Names []string

	// Debounce is how long each account waits for further parts of a message; default 0.
	Debounce map[string]time.Duration

	// ResetAt is the time of day after which the conversations of an account begin anew, as the
	// time since midnight; default none.
	ResetAt map[string]time.Duration

	// IdleAfter is the time without messages after which notes replace the older part of a
	// conversation. DreamEvery is the time between two runs of Dream. 0 disables either.
	IdleAfter  time.Duration
	DreamEvery time.Duration
	History    time.Duration // how long notes are kept after Dream has read them; 0: for ever
}

// SetDefaults sets the fields that are zero to their defaults.
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
