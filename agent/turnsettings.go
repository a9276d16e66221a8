package agent

import (
	"cmp"
	"time"

	"gateway/agent/llm"
	"gateway/agent/policy"
	"gateway/bus"
)

// Settings are what a turn keeps from its beginning to its end.
type Settings struct {
	Model         llm.Model // that answers
	ModelName     string    // shown by /status
	ModelID       string    // as prices know it
	ContextWindow int       // tokens; default 65,536
	MaxOutput     int       // of an answer, in tokens; default the provider's
	NoImages      bool      // the model does not understand images

	Heartbeat     *Choice       // the model for heartbeats; default the one that answers
	MaxRounds     int           // model calls that may use tools; default 40
	MaxTaskRounds int           // likewise, of a sub-agent; default 15
	Timeout       time.Duration // longest turn; default 15 min
	SpeechCost    float64       // of a second of transcribed sound, dollars

	// Rules say which tool calls need approval; default none. Somebody who is an Approver or more can
	// give it, by default an admin, within ApprovalTime, by default 10 minutes.
	Rules        policy.Rules
	Approver     bus.Role
	ApprovalTime time.Duration
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

// With returns s with another model for answers.
func (s Settings) With(c *Choice) *Settings {
	s.Model, s.ModelName, s.ModelID = c.Model, c.Name, c.ID
	s.ContextWindow = cmp.Or(c.ContextWindow, s.ContextWindow)
	s.MaxOutput, s.NoImages = c.MaxOutput, c.NoImages
	return &s
}

// ContextBudget is how many tokens a prompt may have, so that there is room for the answer and for
// what an estimate is wrong by.
func (s *Settings) ContextBudget() int {
	const (
		answer  = 8192 // where only the provider knows
		reserve = 1024
	)
	window := s.ContextWindow
	return max(window-cmp.Or(s.MaxOutput, min(answer, window/4))-min(reserve, window/8), 1)
}
