package background

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// A Model is the language model that tasks use. Ask must be safe for concurrent use.
type Model interface {
	// Ask makes one model call. It waits for a free slot and charges the spender. It refuses with
	// [policy.ErrHalted] or [budget.ErrExceeded].
	Ask(ctx context.Context, who budget.Spender, req llm.Request) (*llm.Response, error)
}

// Settings can change while the program runs. Its methods must be safe for concurrent use.
type Settings interface {
	// Background returns the current settings of tasks.
	Background() Config

	// Prompt returns the id of the model that answers in a session, and the maximum size of its
	// prompt in tokens.
	Prompt(key session.Key) (model string, tokens int)
}

// A Config holds the settings of tasks.
type Config struct {
	Model     string        // id of the model for notes
	ModelName string        // name of the model that answers, for people
	Tokens    int           // maximum size of a prompt
	IdleAfter time.Duration // time without messages after which a conversation is compacted; 0: never
	Dream     time.Duration // time between two runs of Dream in one scope; 0: never
	History   time.Duration // how long notes are kept after Dream has read them; 0: for ever
}

// People knows the registered people.
type People interface {
	// Known reports whether a person is still registered. A person who was linked with another one
	// is not.
	Known(q store.Queryer, person int64) (bool, error)

	// Holders returns the people who have a number or had it before they were linked.
	Holders(q store.Queryer, number int64) ([]int64, error)

	// FormerIDs returns the numbers of the people who were linked with a person. What is stored about
	// them belongs to that person.
	FormerIDs(q store.Queryer, person int64) ([]int64, error)

	// Forget unregisters a person and removes chats, in the transaction that deletes everything
	// else about the person.
	Forget(tx *store.Tx, person int64, chats []bus.Address) error
}

// Accounts knows the bots and devices on the platforms.
type Accounts interface {
	// Served reports whether messages to an account can be sent.
	Served(account string) bool

	// ExternalStore returns the store of an account's own data about people, or nil if it has none.
	ExternalStore(account string) ExternalStore

	// Dropped takes back what people see on their messages until the answer, from messages that get
	// none. It must not block.
	Dropped(messages []bus.InboundMessage)
}

// An ExternalStore has its own data about people, outside of the gateway's database. Erase must be
// safe for concurrent use.
type ExternalStore interface {
	// Erase deletes the data about chats, and about the people in direct chats. It may be called
	// more than once.
	Erase(ctx context.Context, chats []string) error
}

// Owners receive reports of problems.
type Owners interface {
	// TellOwners sends a text to each owner.
	TellOwners(tx *store.Tx, text string) error
}

// Media holds the files that people have sent.
type Media interface {
	// Erase removes all files of a conversation.
	Erase(a bus.Address) error
}

// Texts returns error texts for people.
type Texts interface {
	// Explain returns the text that a person reads about a failed model call.
	Explain(err error) string
}

// spenderOf returns the budget owner of work on a scope, or on one of its sessions if key is not
// "".
func spenderOf(s memory.Scope, key session.Key) budget.Spender {
	key.Task = ""
	return budget.Spender{Session: key, Person: s.Person()}
}

// follows reports whether the memory of the scope from may move to the scope to, because both
// belong to the same people. The memory of a person never moves to a chat, where others may read
// it. It stays with a registered person who has or had its number.
func follows(q store.Queryer, people People, from, to memory.Scope) (bool, error) {
	if from.Person() == 0 {
		return true, nil
	}
	if to.Person() == 0 {
		return false, nil
	}
	holders, err := people.Holders(q, from.Person())
	others := slices.ContainsFunc(holders, func(id int64) bool { return id != to.Person() })
	return err == nil && !others, err
}

// commit runs fn in a transaction. Once begun, the transaction is finished even if the process is
// stopping.
func commit(ctx context.Context, db *store.DB, fn func(tx *store.Tx) error) error {
	return db.Tx(context.WithoutCancel(ctx), fn)
}

// jsonOf returns v as JSON. v must be a value that can always be encoded.
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
