package command

import (
	"context"

	"gateway/agent/llm"
	"gateway/agent/question"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// Sessions is what commands see of the dispatcher: the conversations and their running turns. Its
// methods but those of [Stop] and [Erasure] are called outside of transactions, since they may wait
// for one.
type Sessions interface {
	// Status describes a conversation and the gateway.
	Status(ctx context.Context, key session.Key) (Status, error)

	// Window says what fills the context window of a conversation when the sender of m is answered.
	Window(ctx context.Context, key session.Key, m bus.InboundMessage) (Window, error)

	// Mode returns the queue mode of a conversation, and SetMode changes it in memory.
	Mode(key session.Key) string
	SetMode(key session.Key, mode string)

	// Models returns the models of a conversation. SetModel changes the chosen one in memory; "" is
	// the default.
	Models(key session.Key) Models
	SetModel(key session.Key, id string)

	// SetEffort changes in memory how long the model of a conversation thinks.
	SetEffort(key session.Key, e llm.Effort)

	// Stop prepares to end what works for the conversation of m.
	Stop(m bus.InboundMessage, e Extent) Stop

	// Forget prepares to erase all that is known of the sender of a message.
	Forget(r bus.Received) Erasure

	// Decided lets the turn of a session go on whose question was decided.
	Decided(key session.Key)

	// Answer returns what the model reads when somebody answers a question with text.
	Answer(q *question.Question, text string) string
}

// Background is what commands see of the background tasks.
type Background interface {
	// Archive has notes made of the messages that a conversation has now.
	Archive(tx *store.Tx, key session.Key) error

	// Changes describes the changes of the documents of a scope, or only the one with an id.
	Changes(ctx context.Context, s memory.Scope, id string) (string, error)

	// Wake has the tasks looked for that are due. It is called after a commit.
	Wake()
}

// An Extent says how much of a conversation's work is stopped.
type Extent int

// The extents.
const (
	// Everything is the running turn, its sub-agents, background jobs, and what waits.
	Everything Extent = iota

	// Foreground is everything but what works in the background. Runs that it ends begin anew.
	Foreground

	// Own is the turn that nobody else has written to, and the sender's own waiting messages.
	Own
)

// A Stop ends work for a conversation.
type Stop interface {
	// End ends the work in the database. It may be called more than once.
	End(tx *store.Tx) (Stopped, error)

	// Cancel ends the work in memory. It is called after a commit.
	Cancel()
}

// Stopped is what a [Stop] has ended.
type Stopped struct {
	Turn      bool // the running turn of the conversation
	Running   bool // a turn of the conversation goes on
	Tasks     int  // sub-agents
	Jobs      int  // jobs and hooks in sessions of their own
	Discarded int  // waiting messages

	Answers, Streams []string // for [Reply.Answers] and [Reply.Stops]
}

// Nothing reports whether there was nothing to end.
func (s *Stopped) Nothing() bool { return !s.Turn && s.Tasks+s.Jobs+s.Discarded == 0 }

// reply returns a reply that takes the place of the answers that were ended.
func (s *Stopped) reply(text string) Reply {
	return Reply{Text: text, Answers: s.Answers, Stops: s.Streams}
}

// An Erasure erases all that is known of somebody.
type Erasure interface {
	// Erase deletes the rows, and puts answer into the outbox as the last message. Files and what
	// is left follow in the background. It may be called more than once.
	Erase(tx *store.Tx, answer bus.OutboundMessage) error

	// Cancel ends the work in memory. It is called after a commit.
	Cancel()
}

// A Status is the state of a conversation and of the gateway.
type Status struct {
	Lines   []string // further lines about tools and channels, each beginning with "- "
	Uptime  string
	Model   string
	Context int // tokens that a prompt may have
	Waiting int // messages
	Mode    string
	Busy    int // conversations
	Calls   int // model calls under way
	Slots   int // model calls that may be under way
}

// Models are those that a conversation may have.
type Models struct {
	Default Model
	Chosen  string // id of the model that was chosen for the conversation; "" if none was
	Choices []Model

	Effort  llm.Effort   // that was chosen for the conversation
	Efforts []llm.Effort // that can be asked of the model that answers
}

// A Model is a language model.
type Model struct{ ID, Name string }
