package bus

import "cmp"

// An Origin says who began a message, and for what. The zero Origin is that of a message that a
// person wrote just now.
type Origin struct {
	Kind    OriginKind `json:"kind"`
	Label   string     `json:"label,omitempty"`   // what the work is called
	Session string     `json:"session,omitempty"` // that it belongs to; "": its conversation's

	// Parent is the session that gave the task and gets the outcome: of a Task and an Outcome.
	Parent string `json:"parent,omitempty"`

	// Call is the tool call of Parent that waits for the outcome, or "": likewise.
	Call string `json:"call,omitempty"`

	// Background says that the work began with a job, a heartbeat or a hook: likewise.
	Background bool `json:"background,omitempty"`

	// Budget is the turn whose limit pays, or 0: likewise. See [Origin.BudgetTurn].
	Budget int64 `json:"budget,omitempty"`

	// Foreign names what strangers wrote into the turn that gave the task, or is "".
	Foreign string `json:"foreign,omitempty"`

	Run      int64 `json:"run,omitempty"`      // of a Job and a Heartbeat: its row
	Reminder bool  `json:"reminder,omitempty"` // of a Job: a person wants to hear it
}

// An OriginKind says who began a message.
type OriginKind string

// The kinds of origins.
const (
	Person    OriginKind = ""          // somebody wrote it, just now
	Task      OriginKind = "task"      // the agent gave it to a sub-agent
	Outcome   OriginKind = "outcome"   // a sub-agent has finished its task
	Job       OriginKind = "job"       // a job is due
	Heartbeat OriginKind = "heartbeat" // it is time to look after what is open
	Hook      OriginKind = "hook"      // another program posted it
)

// String returns the name of k.
func (k OriginKind) String() string { return cmp.Or(string(k), "person") }

// Interactive reports whether people follow the turn that o begins: they see that the agent types,
// and what they say meanwhile belongs to it.
func (o Origin) Interactive() bool { return o.Kind == Person || o.Kind == Outcome }

// Standalone reports whether o begins a turn of its own, which no other message joins: what people
// write meanwhile waits for its end, as it may end in silence.
func (o Origin) Standalone() bool {
	return o.Kind == Job || o.Kind == Heartbeat || o.Kind == Hook
}

// Proactive reports whether nobody wrote just now, neither the message nor what it is about.
func (o Origin) Proactive() bool { return o.Standalone() || o.Background }

// MayBeSilent reports whether the turn that o begins may end without an answer. It may not in the
// conversation itself, where the answer would be missing, nor if somebody is to be reminded.
func (o Origin) MayBeSilent() bool { return o.Standalone() && o.Session != "" && !o.Reminder }

// BudgetTurn returns the turn whose limit pays for the sub-agents of a turn that o began. A turn
// that only tells of an outcome answers within its own limit, but what it passes on to further
// sub-agents is paid by the turn that gave the first task: a chain of them has one limit.
func (o Origin) BudgetTurn(turn int64) int64 { return cmp.Or(o.Budget, turn) }
