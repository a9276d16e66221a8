package background

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// A Model is the language model that tasks ask. It is used concurrently.
type Model interface {
	// Ask asks the model once. It waits for a free slot, counts what is used on the spender's
	// account, and refuses with [policy.ErrHalted] or [budget.ErrSpent].
	Ask(ctx context.Context, who budget.Spender, req llm.Request) (*llm.Response, error)
}

// Settings can change while the program runs. They are read concurrently.
type Settings interface {
	// Background returns the present settings of tasks.
	Background() Config

	// Prompt returns the id of the model that answers a session, and how many tokens a prompt for it
	// may have.
	Prompt(key session.Key) (model string, tokens int)
}

// A Config is what the configuration says of tasks.
type Config struct {
	Model     string        // id of the model for notes
	ModelName string        // of the model that answers, for people
	Tokens    int           // that a prompt may have
	IdleAfter time.Duration // a conversation is summarised after so long without messages; 0: never
	Dream     time.Duration // between two runs of Dream in one scope; 0: it never runs
}

// People know who is who.
type People interface {
	// Known reports whether a person is still known. A person who was linked with another is not.
	Known(q store.Queryer, person int64) (bool, error)

	// Forget makes a person a stranger, and forgets chats.
	Forget(tx *store.Tx, person int64, chats []bus.Address) error
}

// Accounts are the bots and devices on the platforms.
type Accounts interface {
	// Served reports whether messages to an account can be sent.
	Served(account string) bool

	// Keeper returns what keeps data of its own about the people on an account, or nil.
	Keeper(account string) Keeper
}

// A Keeper has data of its own about people, beside the gateway's database. It is used
// concurrently.
type Keeper interface {
	// Erase deletes the data about chats, and about the people behind direct ones. It may be called
	// again.
	Erase(ctx context.Context, chats []string) error
}

// Owners hear of problems.
type Owners interface {
	// TellOwners sends a text to each owner.
	TellOwners(tx *store.Tx, text string) error
}

// Media are the files that people have sent.
type Media interface {
	// Erase removes all files of a conversation.
	Erase(a bus.Address) error
}

// Texts are what people read.
type Texts interface {
	// Explain returns what a person is told of a failed model call.
	Explain(err error) string
}

// spenderOf returns on whose account work for a scope is done, and for one of its sessions if there
// is one.
func spenderOf(s memory.Scope, key session.Key) budget.Spender {
	if parent := key.Parent(); parent != "" {
		key = parent
	}
	return budget.Spender{Session: string(key), Person: s.Person()}
}

// follows reports whether the memory of a scope belongs to whoever has that of another. What is
// known of a person is never for a chat, where others may read it, and stays with a person who is
// still known.
func follows(q store.Queryer, people People, from, to memory.Scope) (bool, error) {
	if from.Person() == 0 {
		return true, nil
	}
	if to.Person() == 0 {
		return false, nil
	}
	known, err := people.Known(q, from.Person())
	return !known, err
}

// jsonOf returns v as JSON; it is for values that always have a form.
func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("background: %v", err))
	}
	return text
}

// Count returns "one thing" or "7 things".
func Count(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
