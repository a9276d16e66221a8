package memory

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"gateway/store"
)

// Options are the optional settings of [New].
type Options struct {
	Now    func() time.Time // the clock; time.Now by default
	Logger *slog.Logger     // none by default
}

// A Memory is what the agent knows of all scopes. Its methods may be called concurrently.
type Memory struct {
	db  *store.DB
	dir *os.Root // has a folder per scope
	now func() time.Time
	log *slog.Logger
}

// New returns the memory that is in db, and whose files are in dir.
func New(db *store.DB, dir *os.Root, opts *Options) *Memory {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Memory{
		db: db, dir: dir, now: o.Now,
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
}

// A Space is what the agent knows of one scope. Nothing of another is seen or changed through it.
type Space struct {
	m     *Memory
	scope Scope
}

// In returns the space of a scope. It does no I/O.
func (m *Memory) In(s Scope) *Space { return &Space{m, s} }

// A ScopeInfo says for operators how much there is of a scope.
type ScopeInfo struct {
	Scope   Scope
	Facts   int
	Last    int64 // cursor of the newest history entry
	Synced  int64 // cursor up to which the file has them
	Dreamed int64 // cursor up to which Dream has read them
}

// Scopes lists the scopes that there are, by name.
func (m *Memory) Scopes(q store.Queryer) ([]ScopeInfo, error) { return nil, errMissing }
