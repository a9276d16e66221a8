// Package dream turns the history of a memory scope into lasting memory: a [Dreamer] reads what is
// new in it, and changes the documents of that scope and no other.
//
// A run has three phases. One call of the model names what is to change; a second conversation,
// whose only tools are edits of copies in memory, makes the changes; then the copies take the place
// of the documents, in one version of the scope's history, and the cursor moves. The results of
// each phase are saved before the next begins, so that another process can end a run that was
// killed, without asking or changing anything twice. A document that a person edits meanwhile is
// merged; where both have changed the same lines, the person's lines stay.
//
// Limits: see [Options]. A document neither exceeds its size nor loses more than half of its lines
// in a run. The package owns no tables and no files: it changes USER.md, MEMORY.md, SOUL.md and new
// skills of a scope through [Documents].
package dream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"gateway/agent/llm"
	"gateway/memory"
	"gateway/memory/version"
	"gateway/store"
)

// A History is what a scope has lived through, as [memory.ScopedStore] has it.
type History interface {
	// Entries returns up to limit entries after a cursor, the oldest first.
	Entries(q store.Queryer, after int64, limit int) ([]memory.Entry, error)
	// Last returns the cursor of the newest entry, 0 if there is none.
	Last(q store.Queryer) (int64, error)
	// Dreamed returns the cursor up to which earlier runs have read.
	Dreamed(q store.Queryer) (int64, error)
	// SetDreamed notes that a run has read up to a cursor.
	SetDreamed(tx *store.Tx, cursor int64) error
}

// Documents are the files of scopes, as [gateway/memory/document.Documents] has them. Names are
// paths with slashes, relative to the scope's folder.
type Documents interface {
	// Read returns all of a document and its hash, "" for both if it isn't there.
	Read(s memory.Scope, name string) (text, hash string, err error)
	// Save replaces a document whose hash is base, "" if it isn't there. It reports
	// [document.ErrChanged] if it has another hash.
	Save(s memory.Scope, name, text, base string) error
	// Create writes a file that isn't there, or reports [document.ErrExists].
	Create(s memory.Scope, name, text string) error
}

// Versions are the history of a scope's documents, as [version.Tree] has them.
type Versions interface {
	// Commit records the documents as they are. It returns the zero Version if nothing has
	// changed or the change was recorded before.
	Commit(ctx context.Context, c version.Change) (version.Version, error)
	// Has reports whether a change with this ID was recorded.
	Has(ctx context.Context, change string) (bool, error)
	// Log returns the newest n versions, the newest first.
	Log(ctx context.Context, n int) ([]version.Version, error)
}

// Deps are what a [Dreamer] works with. All but the last two and Skills are required.
type Deps struct {
	DB        *store.DB
	History   func(memory.Scope) History
	Documents Documents
	Versions  func(memory.Scope) Versions

	// Skills returns the names of the skills that the scope sees, so that none is made twice.
	Skills func(memory.Scope) []string

	// Ask asks the model once. It minds halts, budgets and the number of calls at a time, and
	// counts what is used; its errors mean that the run is to be tried later.
	Ask func(ctx context.Context, req llm.Request) (*llm.Response, error)

	Now    func() time.Time // by default the time of the system
	Logger *slog.Logger     // by default nothing is logged
}

// Options are the limits of a run.
type Options struct {
	MaxEntries  int // history entries of a run; by default 20
	MaxRounds   int // model calls of its second phase; by default 10
	MaxOutput   int // tokens of an answer; 0 is the provider's default
	MaxDocument int // the size of a document, in bytes; by default 16,384

	// MaxTokens is what all model calls of a run may use, input and output; by default 100,000.
	// The last answer may exceed it if the provider ignores the limit that it is given.
	MaxTokens int

	Zone *time.Location // of the dates that the model sees; by default UTC
}

// A Dreamer makes memory out of history. It may be used concurrently, but runs one at a time for
// each scope.
type Dreamer struct {
	deps Deps
	opts Options
}

// New returns a Dreamer.
func New(deps Deps, opts *Options) *Dreamer {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	o.MaxEntries = cmp.Or(max(o.MaxEntries, 0), 20)
	o.MaxRounds = cmp.Or(max(o.MaxRounds, 0), 10)
	o.MaxTokens = cmp.Or(max(o.MaxTokens, 0), 100_000)
	o.MaxOutput = max(o.MaxOutput, 0)
	o.MaxDocument = cmp.Or(max(o.MaxDocument, 0), 16<<10)
	o.Zone = cmp.Or(o.Zone, time.UTC)
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Logger = cmp.Or(deps.Logger, slog.New(slog.DiscardHandler))
	if deps.Skills == nil {
		deps.Skills = func(memory.Scope) []string { return nil }
	}
	return &Dreamer{deps: deps, opts: o}
}

// A Report says what a run has done.
type Report struct {
	Scope    memory.Scope
	From, To int64    // it has read the entries after From, up to To; the same if there were none
	Changes  []string // in words, a line each
	Version  string   // what the versions of the documents call the change; "" if there is none
	Skipped  []string // what was not done, and why, a line each
	More     bool     // there is more history to read
}

// A GiveUpError reports that the model's answers were of no use for the third time in a row, or
// more often. Nothing was lost and the cursor did not move; somebody should be told, and the next
// run wait for longer.
type GiveUpError struct {
	Scope    memory.Scope
	Failures int   // in a row
	Err      error // the last one
}

// Error implements error.
func (e *GiveUpError) Error() string {
	return fmt.Sprintf("dream: %s: given up after %d attempts: %v", e.Scope, e.Failures, e.Err)
}

func (e *GiveUpError) Unwrap() error { return e.Err }
