// Package dream turns the history of a memory scope into lasting memory: a [Dreamer] reads
// the new entries and changes the documents of that scope only.
//
// A run has three phases. First, one model call names the changes to make. Second, a
// conversation with the model makes the changes; its only tools edit copies in memory.
// Third, the copies replace the documents, as one version of the scope's history, and the
// cursor moves. The result of each phase is saved before the next begins. If a run is
// killed, another process completes it without repeating a call or a change. Changes that
// a person makes to a document in the meantime are merged; where both have changed the
// same lines, the person's lines win.
//
// Limits: see [Options]. A run never makes a document exceed its size, nor removes more
// than half of its lines. The package owns no tables and no files: it changes USER.md,
// MEMORY.md, SOUL.md and new skills of a scope through [Documents].
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

// A History is the history of a scope. [memory.ScopedStore] implements it.
type History interface {
	// Entries returns up to limit entries after a cursor, the oldest first.
	Entries(q store.Queryer, after int64, limit int) ([]memory.Entry, error)
	// Last returns the cursor of the newest entry, 0 if there is none.
	Last(q store.Queryer) (int64, error)
	// Dreamed returns the cursor of the last entry that earlier runs have read.
	Dreamed(q store.Queryer) (int64, error)
	// SetDreamed records that a run has read the entries up to a cursor.
	SetDreamed(tx *store.Tx, cursor int64) error
}

// Documents are the files of scopes. [gateway/memory/document.Documents] implements it.
// Names are slash-separated paths relative to the scope's folder.
type Documents interface {
	// Read returns the full content of a document and its hash, or "" for both if it does not
	// exist.
	Read(s memory.Scope, name string) (text, hash string, err error)
	// Save replaces a document whose hash is base, "" if it does not exist. It returns
	// [document.ErrChanged] if the hash differs.
	Save(s memory.Scope, name, text, base string) error
	// Create writes a new file. It returns [document.ErrExists] if the file exists.
	Create(s memory.Scope, name, text string) error
}

// Versions is the history of a scope's documents. [version.Tree] implements it.
type Versions interface {
	// Commit records the current documents. It returns the zero Version if nothing has changed
	// or the change was recorded before.
	Commit(ctx context.Context, c version.Change) (version.Version, error)
	// Has reports whether a change with this ID was recorded.
	Has(ctx context.Context, change string) (bool, error)
	// Log returns the newest n versions, the newest first.
	Log(ctx context.Context, n int) ([]version.Version, error)
}

// Deps are the dependencies of a [Dreamer]. All but the last two and Skills are required.
type Deps struct {
	DB        *store.DB
	History   func(memory.Scope) History
	Documents Documents
	Versions  func(memory.Scope) Versions

	// Skills returns the names of the skills visible to the scope, so that Dream does not
	// write one again.
	Skills func(memory.Scope) []string

	// Ask makes one model call. It respects halts, budgets and the limit of concurrent calls,
	// and counts the usage. After an error the run is retried later.
	Ask func(ctx context.Context, req llm.Request) (*llm.Response, error)

	Now    func() time.Time // by default the time of the system
	Logger *slog.Logger     // by default nothing is logged
}

// Options are the limits of a run.
type Options struct {
	MaxEntries  int // history entries per run; by default 20
	MaxRounds   int // model calls in the second phase; by default 10
	MaxDocument int // the size of a document, in bytes; by default 16,384

	// MaxTokens is the limit for all model calls of a run, input and output; by default
	// 100,000. The last answer may exceed it if the provider ignores the limit in the request.
	MaxTokens int

	Zone *time.Location // of the dates that the model sees; by default UTC
}

// A Dreamer turns history into memory. It is safe for concurrent use, but the runs of one
// scope must not overlap.
type Dreamer struct {
	deps Deps
	opts Options
}

// New returns a Dreamer.
func New(deps Deps, opts *Options) *Dreamer {
	o := *cmp.Or(opts, new(Options))
	o.MaxEntries = cmp.Or(max(o.MaxEntries, 0), 20)
	o.MaxRounds = cmp.Or(max(o.MaxRounds, 0), 10)
	o.MaxTokens = cmp.Or(max(o.MaxTokens, 0), 100_000)
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

// A Report is the result of a run.
type Report struct {
	Scope    memory.Scope
	From, To int64    // the run read the entries after From up to To; equal if there were none
	Changes  []string // descriptions, one line each
	Version  string   // version of the documents with the changes; "" if there is none
	Skipped  []string // what was not done and why, one line each
	More     bool     // there is more history to read
}

// A GiveUpError means that the model's answers were useless at least three times in a row.
// Nothing was lost and the cursor did not move. The caller should tell the owner, and wait
// longer before the next run.
type GiveUpError struct {
	Scope    memory.Scope
	Failures int   // consecutive failures
	Err      error // the last failure
}

// Error implements error.
func (e *GiveUpError) Error() string {
	return fmt.Sprintf("dream: %s: given up after %d attempts: %v", e.Scope, e.Failures, e.Err)
}

func (e *GiveUpError) Unwrap() error { return e.Err }
