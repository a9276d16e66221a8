package memory

import (
	"context"
	"errors"
	"io"
	"time"

	"gateway/store"
)

var errMissing = errors.New("memory: not there yet")

// Migration makes the tables of this package.
var Migration = store.Migration{Package: "memory"}

// A Fact is something that the agent was told to remember.
type Fact struct {
	Key        string    `json:"key"` // unique within the scope
	Value      string    `json:"value"`
	Category   string    `json:"category,omitempty"`
	Tags       []string  `json:"tags,omitempty"`
	Importance int       `json:"importance"` // 1 to 5; 0 stands for 3
	Pinned     bool      `json:"pinned,omitempty"`
	Created    time.Time `json:"created"`
	Used       time.Time `json:"used"` // it fades with the time since then
}

// String returns the fact as a line of data, see [Render].
func (f Fact) String() string { return Render([]Fact{f}) }

// Render returns facts as lines of data for a prompt. What looks like an order is quoted.
func Render(facts []Fact) string { return "" }

// Set remembers a fact, in the place of one with the same key.
func (s *Space) Set(tx *store.Tx, f Fact) error { return errMissing }

// Fact returns the fact with a key, if there is one.
func (s *Space) Fact(q store.Queryer, key string) (Fact, bool, error) {
	return Fact{}, false, errMissing
}

// Forget removes a fact and reports whether there was one.
func (s *Space) Forget(tx *store.Tx, key string) (bool, error) { return false, errMissing }

// Pin pins a fact or no longer pins it, and reports whether there is one.
func (s *Space) Pin(tx *store.Tx, key string, pinned bool) (bool, error) { return false, errMissing }

// Touch notes that facts are used now.
func (s *Space) Touch(tx *store.Tx, keys ...string) error { return errMissing }

// Facts returns facts of a category, or of all if it is "", those used last first.
func (s *Space) Facts(q store.Queryer, category string, limit int) ([]Fact, error) {
	return nil, errMissing
}

// A Category is how many facts there are of it.
type Category struct {
	Name  string // "" if they have none
	Facts int
}

// Categories lists the categories of the facts, the largest first.
func (s *Space) Categories(q store.Queryer) ([]Category, error) { return nil, errMissing }

// Known reports whether there are any facts.
func (s *Space) Known(q store.Queryer) (bool, error) { return false, errMissing }

// Pinned returns the pinned facts, by key.
func (s *Space) Pinned(q store.Queryer) ([]Fact, error) { return nil, errMissing }

// Relevant returns up to n facts, none of them pinned, that have to do with text, the best first,
// whose lines have no more than maxChars characters together.
func (s *Space) Relevant(q store.Queryer, text string, n, maxChars int) ([]Fact, error) {
	return nil, errMissing
}

// An Entry is a line of the scope's history.
type Entry struct {
	Cursor  int64
	Time    time.Time
	Session string
	Text    string
}

// Append adds an entry to the history and returns its cursor, which is greater than those before.
func (s *Space) Append(tx *store.Tx, e Entry) (int64, error) { return 0, errMissing }

// Entries returns up to limit entries after a cursor, the oldest first.
func (s *Space) Entries(q store.Queryer, after int64, limit int) ([]Entry, error) {
	return nil, errMissing
}

// Newest returns the newest entries after a cursor, limit at most, the oldest of them first.
func (s *Space) Newest(q store.Queryer, after int64, limit int) ([]Entry, error) {
	return nil, errMissing
}

// OfSession returns the entries of a session after a cursor, the oldest first.
func (s *Space) OfSession(q store.Queryer, session string, after int64) ([]Entry, error) {
	return nil, errMissing
}

// Last returns the cursor of the newest entry, 0 if there was none yet.
func (s *Space) Last(q store.Queryer) (int64, error) { return 0, errMissing }

// Dreamed returns the cursor of the newest entry that Dream has read.
func (s *Space) Dreamed(q store.Queryer) (int64, error) { return 0, errMissing }

// SetDreamed notes that Dream has read up to a cursor.
func (s *Space) SetDreamed(tx *store.Tx, cursor int64) error { return errMissing }

// A Message is one of the transcript that the prompt no longer holds.
type Message struct {
	ID      int64 // of the transcript's row
	Time    time.Time
	Session string
	Speaker string // "user" or "assistant"
	Text    string
}

// Archive makes messages searchable. Those that it has already are left out.
func (s *Space) Archive(tx *store.Tx, list []Message) error { return errMissing }

// A Kind says what was found.
type Kind string

// The kinds of hits.
const (
	KindFact    Kind = "fact"
	KindEntry   Kind = "entry"
	KindMessage Kind = "message"
)

// A Hit is what a search has found.
type Hit struct {
	Kind    Kind
	Fact    Fact  // of a fact
	ID      int64 // the cursor of an entry, the ID of a message
	Time    time.Time
	Session string
	Speaker string // of a message
	Excerpt string // around the match, at most 300 characters
	Score   float64
}

// Search returns the facts and history entries that fit query best.
func (s *Space) Search(q store.Queryer, query string, limit int) ([]Hit, error) {
	return nil, errMissing
}

// HistoryOptions narrow a search of the history.
type HistoryOptions struct {
	Since, Until time.Time // zero: unbounded
	Session      string    // "": all
	Limit        int       // 10 by default, 100 at most
	Newest       bool      // the newest first, not the best
}

// SearchHistory returns the archived messages and history entries that fit query.
func (s *Space) SearchHistory(q store.Queryer, query string, o HistoryOptions) ([]Hit, error) {
	return nil, errMissing
}

// Erase removes everything of the scope from the tables. Its folder is for [Memory.EraseFiles].
func (s *Space) Erase(tx *store.Tx) error { return errMissing }

// EraseFiles removes the folder of a scope.
func (m *Memory) EraseFiles(ctx context.Context, s Scope) error { return errMissing }

// Merge moves everything of one scope into another, because both are of the same person.
// [Memory.MergeFiles] does what is left to do once it is committed.
func (m *Memory) Merge(tx *store.Tx, from, to Scope) error { return errMissing }

// MergeFiles brings the history files to what [Memory.Merge] has made of the tables.
func (m *Memory) MergeFiles(ctx context.Context, from, to Scope) error { return errMissing }

// Sync appends to the history file of a scope what it lacks.
func (m *Memory) Sync(ctx context.Context, s Scope) error { return errMissing }

// SyncAll does what [Memory.Sync] does for all scopes whose files lag behind, and ends what
// [Space.Erase] and [Memory.Merge] have left to do when the process ended.
func (m *Memory) SyncAll(ctx context.Context) error { return errMissing }

// A Rebuilt says what [Memory.Rebuild] has found.
type Rebuilt struct {
	Entries int      // that there are now
	Changed int      // whose text, time or session was another one
	Added   int      // that the table did not have
	Removed int      // that the file does not have
	Bad     []string // lines that are no entries, with their numbers; they stay in the file
}

// Rebuild makes the entries and the index of a scope anew from its history file.
func (m *Memory) Rebuild(ctx context.Context, s Scope) (Rebuilt, error) {
	return Rebuilt{}, errMissing
}

// Export writes the facts and entries of a scope as lines of JSON, after a line that says so.
func (m *Memory) Export(ctx context.Context, s Scope, w io.Writer) error { return errMissing }
