// Package tool defines what the agent can do besides talking: a [Tool] with
// the schema of its arguments, and the [Registry] of those that a turn may use.
//
// [New] derives the schema from a Go struct. The registry checks the arguments of a call against
// it, and corrects mistakes that need no guess. Errors are written for the model, which reads them
// as the call's result: they say what is wrong and what is expected.
//
// The tools themselves stand in agent/tools. The package owns no tables.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// An Effect says what a resumed turn may do with a call that was begun and has
// no result, because the process ended in between.
type Effect int

// The effects.
const (
	// Once is for what must not happen twice, such as sending a message. The
	// call isn't run again: the model is told that its outcome is unknown.
	Once Effect = iota

	// Idempotent is for what changes something, but running it again changes
	// nothing more. The call is run again.
	Idempotent

	// Pure is for what only looks. The call is run again, and calls of pure
	// tools may run at the same time.
	Pure
)

// String returns the effect's name in lower case.
func (e Effect) String() string {
	switch e {
	case Once:
		return "once"
	case Idempotent:
		return "idempotent"
	case Pure:
		return "pure"
	}
	return fmt.Sprintf("effect %d", int(e))
}

// A Tool is something that the agent can do.
type Tool struct {
	Name        string          // letters, digits, "_" and "-", at most 64
	Description string          // for the model: when to use it and when not
	Schema      json.RawMessage // JSON Schema of the arguments, an object
	Effect      Effect
	Least       bus.Role // who may make the agent use it; "" is everybody

	// Rare says in a few words what a rarely used tool is for. Models call such a tool through the
	// tool [MoreName], and learn Description and Schema only when they ask for them.
	Rare string

	// Run does it. It may be called concurrently. An error becomes the call's
	// result: it is for the model to read, and no reason to end the turn.
	Run func(ctx context.Context, call Call) (Result, error)

	// Argv returns the command that a call would run, or to which it would give input; nil if it
	// would do neither. Rules about commands look at it, and people who are asked for approval see
	// it. A tool that runs no commands has none.
	Argv func(c Call) []string

	// Operands, if there is one, returns the files that a call names, as they are now. An approval
	// is for them, too: if they have changed, the call needs another one.
	Operands func(c Call) []Operand

	// Like names the tool whose rules hold, besides its own, for calls that have an Argv.
	Like string

	// Asks, if there is one, reports whether somebody must approve a call although no rule says so,
	// because of what it would do.
	Asks func(c Call) bool

	// Lasts, if there is one, reports whether a call changes what later turns act on by themselves,
	// such as a document of their prompt or a job. In a turn that has read foreign text somebody
	// must approve such a call.
	Lasts func(c Call) bool

	// Aliases are other names of arguments, such as those that documents written for similar
	// programs teach, each with the name in the schema.
	Aliases map[string]string

	// Timeout is the longest time of one call; 0 is the usual one of the agent.
	Timeout time.Duration

	made madeSchema // by New; need not be read and checked again while it is Schema
}

// A madeSchema is the schema of a Go struct.
type madeSchema struct {
	text   json.RawMessage
	schema *jsonschema.Schema
}

// A Call is one use of a tool. It carries all that a tool may know of where it is
// used, so that a tool keeps no state of its own about chats.
type Call struct {
	ID      string          // as the model named it, unique within the conversation
	Args    json.RawMessage // an object that the registry has checked
	Address bus.Address     // the conversation that the turn answers
	Session bus.Session     // in which the turn runs
	Sender  bus.Sender      // who started the turn
	Person  int64           // who that is, over all platforms; 0: unknown
	Role    bus.Role        // the least of those who take part in the turn
	Group   bool            // more people than the sender read the conversation
	Title   string          // of the group
	Scope   memory.Scope    // whose memory the turn works with; "": none
	Turn    int64
	Budget  int64 // the turn whose limit pays for the sub-agents of this one

	// Foreign names what others have written into the turn, such as a page; "" if nobody has.
	Foreign string

	// Overheard is the least role of people whose words the turn has overheard; "" if there are none.
	Overheard bus.Role

	// Proactive says that nobody has written to the turn: a job, a heartbeat or a hook began it, or
	// began the turn that it works for.
	Proactive bool

	Zone *time.Location // of the people; nil: the gateway's

	// Pay counts what the call is about to cost, in dollars, under a name such as "pictures". It
	// returns an error if a budget does not allow it, or if everything is halted: then the call must
	// not go on.
	Pay func(ctx context.Context, what string, dollars float64) error `json:"-"`
}

// A Result is what a tool found or did.
type Result struct {
	Text string // for the model

	// Foreign says where Text comes from if others than the people of the conversation may have
	// written it, such as `the page https://…`; else it is "". The model sees such a text
	// framed as information.
	Foreign string

	// Kept says that what Foreign names was written by the people of the gateway, or with their
	// leave: a document of the prompt. The turn is trusted as before.
	Kept bool

	// Images are shown to the model beside Text.
	Images []Image

	// Files are stored among those of the conversation, and the model is told where: sound, for
	// example, or what is not text.
	Files []File

	// Commit, if there is one, does what the tool is for, in the transaction that writes the
	// result, and returns what the model is told instead of Text. It may be tried more than
	// once. The effect of such a call and its result are there together or not at all, so that
	// its tool is [Idempotent].
	Commit func(tx *store.Tx) (string, error)

	// Wait, if there is one, lets the turn wait: what comes of that is the call's result, in the
	// place of Text. Commit is called all the same.
	Wait *Wait
}

// A Wait is what a turn waits for. It takes no memory meanwhile, and survives restarts.
type Wait struct {
	Text    string        // what the person is asked, Markdown; unused if Outcome is set
	Options []string      // what the person may choose from; others can be said, too
	For     time.Duration // after that the model is told that nobody has answered

	// Outcome says that not a person is asked: the turn waits for the outcome of the sub-agent
	// whose task Commit puts into the inbox.
	Outcome bool
}

// A RefusedError is an error of [Result].Commit that is for the model to read. Whatever was written
// before it stays, so that it must come first. Any other error is one of the database.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Reason }

// A File is what a tool has found and no text shows.
type File struct {
	Name string // foreign text; its extension is kept if it is a plain one
	Data []byte
}

// An Image is a picture that a tool has found.
type Image struct {
	Name string // of the file, for people and the model; foreign text
	Data []byte // JPEG, PNG, GIF or WebP
}

// New returns a tool whose arguments are the JSON form of the struct Args. The
// "jsonschema" tags of its fields are their descriptions; a field is required
// unless its "json" tag has omitempty or omitzero. New panics if Args has no JSON form.
func New[Args any](
	name, description string, effect Effect,
	run func(ctx context.Context, call Call, args Args) (Result, error),
) Tool {
	s, err := jsonschema.For[Args](nil)
	if err != nil {
		panic(fmt.Sprintf("tool: schema of %s: %v", name, err))
	}
	dropNull(s)
	schema, err := json.Marshal(openSchema(s))
	if err != nil {
		panic(fmt.Sprintf("tool: schema of %s: %v", name, err))
	}
	return Tool{
		Name: name, Description: description, Schema: schema, Effect: effect,
		made: madeSchema{schema, s},
		Run: func(ctx context.Context, call Call) (Result, error) {
			var args Args
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return Result{}, unmarshalError(err)
			}
			return run(ctx, call, args)
		},
	}
}

// openSchema returns a copy of s as models get it. It does not say that there are no other
// properties: models don't invent any, and it costs tokens with each call. Arguments are checked
// against s all the same.
func openSchema(s *jsonschema.Schema) *jsonschema.Schema {
	s = s.CloneSchemas()
	open(s)
	return s
}

func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if closed(s) {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		open(p)
	}
	open(s.Items)
}

// dropNull removes "null" from the types of pointers and slices in s: optional
// fields may be left out, and some providers refuse lists of types.
func dropNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
	if len(s.Types) == 1 {
		s.Type, s.Types = s.Types[0], nil
	}
	for _, p := range s.Properties {
		dropNull(p)
	}
	dropNull(s.Items)
	dropNull(s.AdditionalProperties)
}

// unmarshalError says for the model what the schema can't express, such as the
// size of an integer.
func unmarshalError(err error) error {
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("argument %q: %s does not fit %s", bad.Field, bad.Value, bad.Type)
	}
	return fmt.Errorf("arguments: %w", err)
}
