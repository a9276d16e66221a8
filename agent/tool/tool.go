// Package tool defines the tools of the agent: a [Tool] with the schema of its arguments,
// and a [Registry] of the tools that a turn may use.
//
// [New] derives the schema from a Go struct. The registry checks the arguments of a call
// against the schema, and corrects mistakes that need no guess. The model reads errors as
// the call's result: they say what is wrong and what is expected.
//
// The tools themselves are in agent/tools. The package owns no tables.
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

// An Effect says what a resumed turn does with a call that was started but has no result,
// because the process ended.
type Effect int

// The effects.
const (
	// Once is for calls that must not happen twice, such as sending a message. The call is not
	// repeated; the model is told that its outcome is unknown.
	Once Effect = iota

	// Idempotent is for calls that change something, but change nothing more when repeated.
	// The call is repeated.
	Idempotent

	// Pure is for calls that only read. The call is repeated, and calls of pure tools may run
	// concurrently.
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

// A Tool is an action that the agent can take.
type Tool struct {
	Name        string          // letters, digits, "_" and "-", at most 64
	Description string          // for the model: when to use it and when not
	Schema      json.RawMessage // JSON Schema of the arguments, an object
	Effect      Effect
	MinRole     bus.Role // the least role that may use it; "" allows everybody

	// Rare describes, in a few words, a rarely used tool. Models call such a tool through
	// [MoreName] and get its Description and Schema only on demand.
	Rare string

	// Run executes a call. It may be called concurrently. An error becomes the call's result
	// for the model and does not end the turn.
	Run func(ctx context.Context, call Call) (Result, error)

	// Argv returns the command that a call would run, or to which it would give input, and nil
	// for other calls. Rules about commands match it, and people see it when they are asked
	// for approval. It is nil for a tool that runs no commands.
	Argv func(c Call) []string

	// Operands, if not nil, returns the current files that a call names. An approval covers
	// their content: if a file changes, the call needs a new approval.
	Operands func(c Call) []Operand

	// Like names another tool whose rules also apply to calls that have an Argv.
	Like string

	// Asks, if not nil, reports whether a call needs an approval even if no rule requires one.
	Asks func(c Call) bool

	// Lasts, if not nil, reports whether a call changes something that affects later turns,
	// such as a document of the prompt or a job. In a turn that has read foreign text such a
	// call needs an approval.
	Lasts func(c Call) bool

	// Aliases maps alternative names of arguments, such as those of similar programs, to the
	// names in the schema. A number whose name maps to "NAME=…%s…" becomes the text after the =,
	// with the number in place of %s.
	Aliases map[string]string

	// Timeout is the time limit of one call; 0 means the agent's default.
	Timeout time.Duration

	derived derivedSchema // set by New; valid while derived.text equals Schema
}

// derivedSchema is the schema derived from a Go struct.
type derivedSchema struct {
	text   json.RawMessage                      // for the model
	schema func() (*jsonschema.Resolved, error) // for checking arguments
}

// A Call is one use of a tool. It carries everything that a tool needs to know about the
// conversation, so that tools keep no state about chats.
type Call struct {
	ID      string          // the model's ID of the call, unique within the conversation
	Args    json.RawMessage // an object, checked by the registry
	Address bus.Address     // the conversation of the turn
	Session bus.Session     // the session of the turn
	Sender  bus.Sender      // who started the turn
	Person  int64           // the sender across all platforms; 0: unknown
	Role    bus.Role        // the least role of those who take part in the turn
	Group   bool            // other people read the conversation, too
	Title   string          // title of the group
	Scope   memory.Scope    // the memory of the turn; "": none
	Turn    int64
	Budget  int64 // the turn whose budget pays for sub-agents

	// Foreign names the source of foreign text in the turn, such as a web page; "" if there is
	// none.
	Foreign string

	// Overheard is the least role of people whose messages are in the turn's ambient context;
	// "" if there is none.
	Overheard bus.Role

	// Proactive says that no person's message began the turn, but a job, a heartbeat or a
	// hook. A sub-agent has the value of the turn that it works for.
	Proactive bool

	Zone *time.Location // of the people; nil: the gateway's

	// Chats are all direct chats of the person whose conversation this is; nil if it is the
	// conversation of one chat. Their files belong to the conversation.
	Chats []bus.Address

	Limits Limits // of the turn

	// Reply is the person's answer if the turn makes the call again after a [Wait] with a State;
	// otherwise nil.
	Reply *Reply

	// Pay records what the call is about to cost, in dollars, under a name such as "pictures".
	// It returns an error if a budget does not allow the cost or the gateway is halted: then
	// the call must not continue.
	Pay func(ctx context.Context, what string, dollars float64) error `json:"-"`
}

// Limits are what policies withhold from the turn that makes a call.
type Limits struct {
	Folders  []string // of skills, such as "skills/NAME", that don't exist for the call
	Policies []string // IDs of the policies that apply; they also apply to work that the call begins
}

// A Result is the result of a call.
type Result struct {
	Text string // for the model

	// Foreign names the source of the text if people outside the conversation may have written it,
	// such as `the page https://…`; otherwise it is "". The model sees such a text in a frame
	// that marks it as information.
	Foreign string

	// Trusted says that the source in Foreign was written or approved by the owner's people, such
	// as a document of the prompt. It does not make the turn untrusted.
	Trusted bool

	// Images are shown to the model in addition to Text.
	Images []Image

	// Files are stored with those of the conversation, and the model is told their paths. Use
	// them for sound and other content that is neither text nor an image.
	Files []File

	// Commit, if not nil, performs the call's effect in the transaction that writes the
	// result. It returns the text for the model, which replaces Text. It may run more than
	// once. The effect and the result are committed together or not at all, so that such a
	// tool is [Idempotent].
	Commit func(tx *store.Tx) (string, error)

	// Wait, if not nil, suspends the turn: the outcome of the wait becomes the call's result
	// and replaces Text. Commit is called in any case.
	Wait *Wait
}

// A Wait says what a turn waits for. A suspended turn uses no memory and survives
// restarts.
type Wait struct {
	Text    string        // the question for the person, Markdown; unused if Outcome is set
	Options []string      // suggested answers; others are accepted, too
	For     time.Duration // after this time the model is told that nobody has answered

	// Outcome says that the turn waits not for a person but for the outcome of the sub-agent
	// whose task Commit puts into the inbox.
	Outcome bool

	// State, if not nil, makes the turn call the tool again when the wait is over, with State in
	// [Call].Reply. The answer then goes to the tool and not to the model. State is JSON and is
	// stored.
	State json.RawMessage

	// Cancel, if not nil, means that the tool is in the middle of the call, which ends with the
	// process. After a restart the question is void: the turn treats the call like any other
	// interrupted one. Cancel ends the call. The turn calls it unless it calls the tool again.
	Cancel func() `json:"-"`
}

// A Reply is the end of a [Wait] with a State.
type Reply struct {
	State    json.RawMessage
	Answered bool   // false: nobody answered in time, or the person said something else
	Text     string // option that the person chose, or the person's own words
}

// A RefusedError is an error of [Result].Commit for the model to read. Commit must return
// it before it writes anything, because earlier writes are kept. All other errors are
// database errors.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Reason }

// A File is a tool result that text can't represent.
type File struct {
	Name string // foreign text; a plain extension is kept
	Data []byte
}

// An Image is a picture in a tool result.
type Image struct {
	Name string // file name, for people and the model; foreign text
	Data []byte // JPEG, PNG, GIF or WebP
}

// IsPicture reports whether models can see pictures of a MIME type.
func IsPicture(mime string) bool {
	return slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, mime)
}

// New returns a tool whose arguments are the JSON form of the struct Args. The
// "jsonschema" tags of the fields are their descriptions. A field is required unless its
// "json" tag has omitempty or omitzero. New panics if Args has no JSON form.
func New[Args any](
	name, description string, effect Effect,
	run func(ctx context.Context, call Call, args Args) (Result, error),
) Tool {
	s, err := derive[Args]()
	if err != nil {
		panic(fmt.Sprintf("tool: schema of %s: %v", name, err))
	}
	open(s)
	schema, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("tool: schema of %s: %v", name, err))
	}
	return Tool{
		Name: name, Description: description, Schema: schema, Effect: effect,
		derived: derivedSchema{schema, resolve[Args]},
		Run: func(ctx context.Context, call Call) (Result, error) {
			var args Args
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return Result{}, unmarshalError(err)
			}
			return run(ctx, call, args)
		},
	}
}

// derive returns the schema of the JSON form of the struct Args.
func derive[Args any]() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[Args](nil)
	if err == nil {
		dropNull(s)
	}
	return s, err
}

// resolve returns the schema for checking the arguments Args.
func resolve[Args any]() (*jsonschema.Resolved, error) {
	s, err := derive[Args]()
	if err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// open removes "additionalProperties": false from s, which is for the model. Models don't invent
// properties, and the statement would cost tokens in each request. Arguments are still checked
// against a schema with it.
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

// dropNull removes "null" from the types of pointers and slices in s. Optional fields may
// be left out, and some providers refuse lists of types.
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

// unmarshalError returns an error for the model about limits that the schema can't
// express, such as the size of an integer.
func unmarshalError(err error) error {
	if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("argument %q: %s does not fit %s", bad.Field, bad.Value, bad.Type)
	}
	return fmt.Errorf("arguments: %w", err)
}
