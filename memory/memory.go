// Package memory stores the agent's long-term knowledge: facts that it was told to remember, the
// history of conversations, and the messages that prompts no longer contain. All of it can be
// searched.
//
// The main types are [Memory] and [ScopedStore]. All data belongs to one [Scope] and is read and
// written only through the ScopedStore of that scope. The words of the index contain the number of
// their scope, so that a search cannot return rows of another scope even by mistake.
//
// The table of entries is authoritative; the history file beside it is for people to read and edit.
// [Memory.Sync] appends missing entries to the file, and [Memory.Rebuild] imports the changes that
// people made in it.
//
// Limits: see [Fact] and [MaxEntry]. For words that are very common in the scope, a search examines
// only the newest occurrences.
//
// Tables: memory_scopes, memory_facts, memory_entries, memory_messages, memory_leftovers,
// memory_rests, memory_index and the tables of SQLite's FTS5. Files: history.jsonl in the folder of
// each scope; [Memory.EraseFiles] removes the whole folder. Beside the folder of all scopes,
// NAME.lock is locked while a process writes these files.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"gateway/store"
)

// Migration creates the tables of this package.
//
// The index is contentless: it stores no text. Removing a row requires its old words and
// deletes them at once (secure-delete).
var Migration = store.Migration{Package: "memory", Steps: []string{`
CREATE TABLE memory_scopes (
	id       IDENTITY PRIMARY KEY,
	name     TEXT NOT NULL UNIQUE,
	last     BIGINT NOT NULL DEFAULT 0, -- cursor of the newest entry there ever was
	synced   BIGINT NOT NULL DEFAULT 0, -- cursor up to which the file has the entries
	dreamed  BIGINT NOT NULL DEFAULT 0, -- cursor up to which Dream has read them
	messages BIGINT NOT NULL DEFAULT 0  -- how many are archived
);
CREATE TABLE memory_facts (
	id         IDENTITY PRIMARY KEY,
	scope      BIGINT NOT NULL,
	folded     TEXT NOT NULL, -- the key in lower case
	key        TEXT NOT NULL,
	value      TEXT NOT NULL,
	category   TEXT NOT NULL,
	tags       TEXT NOT NULL, -- JSON
	importance INTEGER NOT NULL,
	pinned     INTEGER NOT NULL,
	created_ms BIGINT NOT NULL,
	used_ms    BIGINT NOT NULL,
	UNIQUE (scope, folded)
);
CREATE TABLE memory_entries (
	id      IDENTITY PRIMARY KEY,
	scope   BIGINT NOT NULL,
	cursor  BIGINT NOT NULL,
	time_ms BIGINT NOT NULL,
	session TEXT NOT NULL,
	text    TEXT NOT NULL,
	UNIQUE (scope, cursor)
);
CREATE INDEX memory_entries_session ON memory_entries (scope, session, cursor);
CREATE TABLE memory_messages (
	id      IDENTITY PRIMARY KEY,
	scope   BIGINT NOT NULL,
	message BIGINT NOT NULL, -- its id in the transcript
	time_ms BIGINT NOT NULL,
	session TEXT NOT NULL,
	speaker TEXT NOT NULL,
	text    TEXT NOT NULL,
	UNIQUE (scope, message)
);
CREATE TABLE memory_leftovers ( -- scopes whose files are still to be removed
	name   TEXT PRIMARY KEY,
	merged TEXT NOT NULL -- the scope that has its history now; '': the whole folder goes
);
CREATE VIRTUAL TABLE memory_index USING
	fts5(terms, content='', columnsize=0, detail=none, tokenize='ascii');
INSERT INTO memory_index (memory_index, rank) VALUES ('secure-delete', 1);`, `
CREATE TABLE memory_rests ( -- numbers of scopes that are gone, and still have rows
	scope   BIGINT PRIMARY KEY,
	target  TEXT NOT NULL, -- the scope to which they go; '': they are deleted
	dreamed INTEGER NOT NULL -- 1: Dream had read all of it
);`}}

// Options are the optional settings of [New].
type Options struct {
	Now func() time.Time // the clock; time.Now by default
}

// A Memory holds the knowledge of all scopes. It is safe for concurrent use.
type Memory struct {
	db  *store.DB
	dir *os.Root // has one folder per scope
	now func() time.Time

	files chan struct{} // holds a value while this Memory has the lock of the files
}

// New returns the memory stored in db, with its files in dir.
func New(db *store.DB, dir *os.Root, opts *Options) *Memory {
	o := *cmp.Or(opts, new(Options))
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Memory{db: db, dir: dir, now: o.Now, files: make(chan struct{}, 1)}
}

// lockPatience is how long lock waits for another process.
const lockPatience = time.Minute

// lock waits for exclusive use of the files of all scopes, also among processes: a command may
// write a history file again while the gateway appends to it.
func (m *Memory) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case m.files <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release, err := store.LockWithin(ctx, m.dir.Name()+".lock", lockPatience)
	if err != nil {
		<-m.files
		return nil, err
	}
	return func() { _ = release(); <-m.files }, nil
}

// A ScopedStore gives access to the memory of one scope, and to no other. Its methods
// return an error if [ParseScope] refuses the scope's name.
type ScopedStore struct {
	m     *Memory
	scope Scope
}

// In returns the ScopedStore of a scope. It does no I/O.
func (m *Memory) In(s Scope) *ScopedStore { return &ScopedStore{m, s} }

// state is the row of a scope. Its number is 0 if the scope has no row.
type state struct {
	number, last, synced, dreamed, messages int64
}

// state reads the scope's row.
func (s *ScopedStore) state(q store.Queryer) (st state, err error) {
	if _, err := ParseScope(string(s.scope)); err != nil {
		return st, fmt.Errorf("memory: %w", err)
	}
	err = q.QueryRow("SELECT id, last, synced, dreamed, messages FROM memory_scopes WHERE name = $1",
		string(s.scope)).Scan(&st.number, &st.last, &st.synced, &st.dreamed, &st.messages)
	return st, s.scope.wrap("read", store.Optional(err))
}

// number returns the scope's number, and assigns one if it has none.
func (s *ScopedStore) number(tx *store.Tx) (int64, error) {
	st, err := s.state(tx)
	if err != nil || st.number != 0 {
		return st.number, err
	}
	err = tx.QueryRow("INSERT INTO memory_scopes (name) VALUES ($1) RETURNING id",
		string(s.scope)).Scan(&st.number)
	return st.number, s.scope.wrap("begin", err)
}

// A ScopeInfo says how much a scope stores, for operators.
type ScopeInfo struct {
	Scope    Scope
	Facts    int
	Entries  int   // of the history
	Messages int   // archived messages
	Last     int64 // cursor of the newest history entry
	Synced   int64 // cursor of the last entry in the history file
	Dreamed  int64 // cursor of the last entry that Dream has read
}

// Scopes returns all scopes, ordered by name.
func (m *Memory) Scopes(q store.Queryer) ([]ScopeInfo, error) {
	return collect(q, func(scan store.Scan) (i ScopeInfo, err error) {
		return i, scan(&i.Scope, &i.Last, &i.Synced, &i.Dreamed, &i.Messages, &i.Facts, &i.Entries)
	}, `SELECT name, last, synced, dreamed, messages,
		(SELECT count(*) FROM memory_facts f WHERE f.scope = s.id),
		(SELECT count(*) FROM memory_entries e WHERE e.scope = s.id)
		FROM memory_scopes s ORDER BY name`)
}

// collect returns the result of scan for each row of a query.
func collect[T any](
	q store.Queryer, scan func(store.Scan) (T, error), query string, args ...any,
) ([]T, error) {
	return store.Collect(q, "memory: read", func(columns store.Scan, row *T) (err error) {
		*row, err = scan(columns)
		return err
	}, query, args...)
}

// column reads a row with one column.
func column[T any](scan store.Scan) (v T, err error) { return v, scan(&v) }
