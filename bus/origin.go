package bus

import "cmp"

// An Origin says who began a message, and why. The zero Origin belongs to a message that a person
// has just written.
type Origin struct {
	Kind    OriginKind `json:"kind"`
	Label   string     `json:"label,omitempty"`  // name of the work, for people
	Session Session    `json:"session,omitzero"` // session of the work; zero: the conversation

	// Conversation is the conversation of the message; zero: that of From. The inbox sets it: see
	// [SessionScope].
	Conversation Session `json:"conversation,omitzero"`

	// Parent is the session that gave the task and gets the outcome. Set for Task and Outcome.
	Parent Session `json:"parent,omitzero"`

	// Call is the tool call in Parent that waits for the outcome, or "". Set for Task and Outcome.
	Call string `json:"call,omitempty"`

	// Background says that a job, a heartbeat or a hook began the work. Set for Task and Outcome.
	Background bool `json:"background,omitempty"`

	// Budget is the turn whose limit pays, or 0. Set for Task and Outcome. See [Origin.BudgetTurn].
	Budget int64 `json:"budget,omitempty"`

	// Foreign names the foreign text in the turn that gave the task, or is "". For Job and Heartbeat
	// it says that the last run, whose answer the message contains, has read foreign text.
	Foreign string `json:"foreign,omitempty"`

	// Rights is the least role of people whose words that turn has overheard, or "". Set for Task,
	// Outcome, Job and Heartbeat.
	Rights Role `json:"rights,omitempty"`

	// Policies has the IDs of policies that limit the turn that gave the task. Set for Task and
	// Outcome.
	Policies []string `json:"policies,omitempty"`

	// Former is the number of the sender before they were linked with another person, or 0.
	Former int64 `json:"-"`

	// Held is the Seq under which a person's message was held, or 0: see [Inbox.PutHeld].
	Held int64 `json:"held,omitempty"`

	Run      int64 `json:"run,omitempty"`      // row of the run. Set for Job and Heartbeat
	Reminder bool  `json:"reminder,omitempty"` // set for a Job that reminds a person
}

// An OriginKind says who began a message.
type OriginKind string

// The kinds of origins.
const (
	Person    OriginKind = ""          // a person has just written it
	Task      OriginKind = "task"      // the agent gave it to a sub-agent
	Outcome   OriginKind = "outcome"   // a sub-agent has finished its task
	Job       OriginKind = "job"       // a job is due
	Heartbeat OriginKind = "heartbeat" // it is time to check the open items
	Hook      OriginKind = "hook"      // another program posted it
)

// String returns the name of k.
func (k OriginKind) String() string { return cmp.Or(string(k), "person") }

// Interactive reports whether people follow the turn that o begins. They see that the agent types,
// and their further messages join the turn.
func (o *Origin) Interactive() bool { return o.Kind == Person || o.Kind == Outcome }

// Standalone reports whether o begins a turn that no other message joins. Messages that people
// write meanwhile wait for its end, because the turn may end without an answer.
func (o *Origin) Standalone() bool {
	return o.Kind == Job || o.Kind == Heartbeat || o.Kind == Hook
}

// Proactive reports whether no person began the work, neither directly nor through a task.
func (o *Origin) Proactive() bool { return o.Standalone() || o.Background }

// MayBeSilent reports whether the turn that o begins may end without an answer. A turn in the
// conversation itself, and a reminder, must answer.
func (o *Origin) MayBeSilent() bool { return o.Standalone() && !o.Session.IsZero() && !o.Reminder }

// BudgetTurn returns the turn whose limit pays for the sub-agents of a turn that o began. A turn
// that reports an outcome answers within its own limit, but its further sub-agents are paid by the
// turn that gave the first task: a chain of them has one limit.
func (o *Origin) BudgetTurn(turn int64) int64 { return cmp.Or(o.Budget, turn) }
