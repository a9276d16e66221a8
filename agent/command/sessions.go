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

// Sessions is the commands' view of the dispatcher: the conversations and their running turns. Call
// its methods outside of transactions, because they may wait for one. Only methods of [Stop] and
// [Erasure] that take a transaction are called inside it.
type Sessions interface {
	// Status describes a conversation and the gateway, for the sender of m.
	Status(ctx context.Context, key session.Key, m bus.InboundMessage) (Status, error)

	// HiddenSkills returns a function that reports whether a policy withholds a skill from the sender
	// of m, or nil if none does.
	HiddenSkills(m bus.InboundMessage) func(name string) bool

	// Window describes the contents of a conversation's context window, for an answer to the sender
	// of m.
	Window(ctx context.Context, key session.Key, m bus.InboundMessage) (Window, error)

	// Choose changes a choice for a conversation in memory. "" restores the configured value.
	Choose(key session.Key, what session.Choice, value string)

	// Mode returns the queue mode of a conversation.
	Mode(key session.Key) string

	// Models returns the models of a conversation, for the sender of m.
	Models(key session.Key, m bus.InboundMessage) Models

	// Voice returns when answers to the sender of m are spoken, or "" if nothing can speak there.
	Voice(key session.Key, m bus.InboundMessage) string

	// Activity returns how much of the work the sender of m sees.
	Activity(key session.Key, m bus.InboundMessage) string

	// TakesFiles reports whether files can be sent to a conversation.
	TakesFiles(to bus.Address) bool

	// Stop prepares to end the work for the conversation of m.
	Stop(m bus.InboundMessage, e Extent) Stop

	// Forget prepares to delete everything that is known of the sender of a message.
	Forget(r bus.Received) Erasure

	// Decided resumes the turn of a session whose question was decided.
	Decided(key session.Key)

	// Answer returns the text that the model reads when a person answers a question with a button,
	// which sends text.
	Answer(q *question.Question, text string) string
}

// Background is the commands' view of the background tasks.
type Background interface {
	// Archive adds a task that makes notes of the current messages of a conversation.
	Archive(tx *store.Tx, key session.Key) error

	// Changes describes the changes of the documents of a scope, or only the change with the given
	// id.
	Changes(ctx context.Context, s memory.Scope, id string) (string, error)

	// Wake starts the tasks that are due. Call it after a commit.
	Wake()
}

// An Extent says how much of a conversation's work is stopped.
type Extent int

// The extents.
const (
	// Everything is the running turn, its sub-agents, background jobs, and the waiting messages.
	Everything Extent = iota

	// Foreground is everything except background work. Runs that it ends begin anew.
	Foreground

	// Own is the running turn if nobody but the sender has written to it, and the sender's waiting
	// messages.
	Own
)

// A Stop ends the work for a conversation.
type Stop interface {
	// End ends the work in the database. It may be called more than once.
	End(tx *store.Tx) (Stopped, error)

	// Cancel ends the work in memory. Call it after a commit.
	Cancel()
}

// Stopped says what a [Stop] has ended.
type Stopped struct {
	Turn      bool // the running turn was ended
	Running   bool // a turn of the conversation still runs
	Tasks     int  // number of sub-agents
	Jobs      int  // number of jobs and hooks in sessions of their own
	Discarded int  // number of waiting messages

	Messages []bus.InboundMessage // of people, that get no other answer
	Streams  []string             // for [Reply.Stops]
}

// Answers returns the platform's ids of the messages from a conversation, whose reply answers them.
func (s *Stopped) Answers(from bus.Address) (ids []string) {
	for i := range s.Messages {
		if s.Messages[i].From == from {
			ids = append(ids, s.Messages[i].ID)
		}
	}
	return ids
}

// Elsewhere returns the messages from other conversations: a person's direct chats may share a
// session.
func (s *Stopped) Elsewhere(from bus.Address) (list []bus.InboundMessage) {
	for i := range s.Messages {
		if s.Messages[i].From != from {
			list = append(list, s.Messages[i])
		}
	}
	return list
}

// Nothing reports whether nothing was ended.
func (s *Stopped) Nothing() bool { return !s.Turn && s.Tasks+s.Jobs+s.Discarded == 0 }

// reply returns a reply to r that replaces the ended answers.
func (s *Stopped) reply(r *Request, text string) Reply {
	return Reply{Text: text, Answers: s.Answers(r.Message.From), Stops: s.Streams}
}

// An Erasure deletes everything that is known of a person.
type Erasure interface {
	// Erase deletes the rows, and puts answer into the outbox as the last message. Background tasks
	// delete the files and the rest. Erase may be called more than once.
	Erase(tx *store.Tx, answer bus.OutboundMessage) error

	// Cancel ends the work in memory. Call it after a commit.
	Cancel()
}

// A Status is the state of a conversation and of the gateway.
type Status struct {
	Lines   []string // more lines about tools and channels, each beginning with "- "
	Uptime  string
	Model   string
	Persona string // "": none
	Context int    // maximum size of a prompt, in tokens
	Waiting int    // number of waiting messages
	Mode    string
	Busy    int // number of conversations with work under way
	Calls   int // model calls under way
	Slots   int // maximum number of concurrent model calls
}

// Models are the models that a conversation can use.
type Models struct {
	Default Model
	Chosen  string // id of the model chosen for the conversation, or ""
	Choices []Model

	Effort  llm.Effort   // effort chosen for the conversation
	Efforts []llm.Effort // efforts that the answering model supports
}

// A Model is a language model.
type Model struct{ ID, Name string }
