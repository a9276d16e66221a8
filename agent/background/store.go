package background

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// Migration makes the tables of this package.
var Migration = store.Migration{Package: "chore", Steps: []string{`
CREATE TABLE chores (
	id       IDENTITY PRIMARY KEY,
	kind     TEXT NOT NULL,
	scope    TEXT NOT NULL, -- whose memory it is about
	session  TEXT NOT NULL, -- or '' if it is about no conversation
	ref      BIGINT NOT NULL, -- tells works of the same kind apart
	state    TEXT NOT NULL DEFAULT '', -- how far it has come
	tell     TEXT NOT NULL DEFAULT '', -- bus.Address of who waits to hear of it, or ''
	puts     BIGINT NOT NULL DEFAULT 1, -- how often it was put
	attempts INTEGER NOT NULL DEFAULT 0, -- that have failed
	due_ms   BIGINT NOT NULL,
	UNIQUE (kind, scope, session, ref)
);
CREATE INDEX chores_due ON chores (due_ms);`, `
CREATE INDEX chores_scope ON chores (scope, due_ms, id);`}}

// A Kind says what is to be done.
type Kind string

// The kinds of tasks.
const (
	Archive Kind = "archive" // notes of the end of a conversation that was left
	Compact Kind = "compact" // notes of the older part of one
	Idle    Kind = "idle"    // likewise, because nobody has written for a while
	Dream   Kind = "dream"   // what the history of a scope says for good
	Version Kind = "version" // note what the agent has written into the documents of a scope
	Log     Kind = "log"     // what was changed in the documents of a scope
	Undo    Kind = "undo"    // take a change of theirs back
	Merge   Kind = "merge"   // the files of a scope go to another one
	Erase   Kind = "erase"   // the files of a scope, and what is left of deleted rows
)

// A Work says what a task is about.
type Work struct {
	Kind    Kind
	Scope   memory.Scope
	Session string
	Ref     int64
}

// A Task is work that is to be done.
type Task struct {
	Work
	ID    int64
	State []byte // what [Store.Save] was given last; nil at first

	// Tell is the message, still without its text, to the person who waits for it; or nil.
	Tell *bus.OutboundMessage

	Attempts int // that have failed
	puts     int64
	tell     string // Tell as it is stored
}

// Store reads and writes tasks. It has no state of its own.
type Store struct{}

// Put adds a task that is due at a time. If there is one of the same work already it becomes due
// then at the latest, with the state that it has, and tells whom it would tell now, if anybody.
func (Store) Put(tx *store.Tx, c Task, due time.Time) error {
	tell := ""
	if c.Tell != nil {
		text, err := json.Marshal(c.Tell)
		if err != nil {
			return fmt.Errorf("background: put %s: %w", c.Kind, err)
		}
		tell = string(text)
	}
	_, err := tx.Exec(`INSERT INTO chores (kind, scope, session, ref, state, tell, due_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (kind, scope, session, ref) DO UPDATE SET puts = chores.puts + 1,
			due_ms = CASE WHEN excluded.due_ms < chores.due_ms THEN excluded.due_ms
				ELSE chores.due_ms END,
			attempts = CASE WHEN excluded.tell <> '' THEN 0 ELSE chores.attempts END,
			tell = CASE WHEN excluded.tell <> '' THEN excluded.tell ELSE chores.tell END`,
		string(c.Kind), string(c.Scope), c.Session, c.Ref, string(c.State), tell, due.UnixMilli())
	if err != nil {
		return fmt.Errorf("background: put %s: %w", c.Kind, err)
	}
	return nil
}

// Due returns the first task of up to limit scopes that have one that is due, the one that is due
// for longest first: those of a scope are done one after another, and keep nobody else waiting. Its
// error has a [store.RowError] for each that can't be read, if nothing else is wrong.
func (Store) Due(q store.Queryer, now time.Time) ([]Task, error) {
	return store.Collect(q, "background: read", func(scan store.Scan, c *Task) error {
		err := scan(&c.ID, &c.Kind, &c.Scope, &c.Session, &c.Ref, &c.State, &c.tell, &c.puts,
			&c.Attempts)
		if err != nil {
			return err
		}
		if c.tell != "" {
			if err := json.Unmarshal([]byte(c.tell), &c.Tell); err != nil {
				return &store.RowError{Table: "chores", ID: c.ID, Err: err}
			}
		}
		if len(c.State) == 0 {
			c.State = nil
		}
		return nil
	}, `SELECT id, kind, scope, session, ref, state, tell, puts, attempts
		FROM chores WHERE due_ms <= $1 AND NOT EXISTS (SELECT 1 FROM chores o
			WHERE o.scope = chores.scope AND (o.due_ms < chores.due_ms
				OR o.due_ms = chores.due_ms AND o.id < chores.id))
		ORDER BY due_ms, id LIMIT 32`, now.UnixMilli())
}

// Mend has nobody told of a task whose address can't be read. The task is done all the same.
func (Store) Mend(tx *store.Tx, id int64) error {
	if _, err := tx.Exec("UPDATE chores SET tell = '' WHERE id = $1", id); err != nil {
		return fmt.Errorf("background: mend %d: %w", id, err)
	}
	return nil
}

// Next returns when the next task is due; false if there is none.
func (Store) Next(q store.Queryer) (due time.Time, ok bool, err error) {
	var at sql.NullInt64
	if err := q.QueryRow("SELECT min(due_ms) FROM chores").Scan(&at); err != nil {
		return due, false, fmt.Errorf("background: read: %w", err)
	}
	return time.UnixMilli(at.Int64), at.Valid, nil
}

// Least returns the least Ref of the tasks of a kind; false if there are none.
func (Store) Least(q store.Queryer, k Kind) (ref int64, ok bool, err error) {
	var least sql.NullInt64
	err = q.QueryRow("SELECT min(ref) FROM chores WHERE kind = $1", string(k)).Scan(&least)
	if err != nil {
		return 0, false, fmt.Errorf("background: read: %w", err)
	}
	return least.Int64, least.Valid, nil
}

// Save notes how far c has come, or reports [ErrGone].
func (Store) Save(tx *store.Tx, c *Task, state []byte) error {
	n, err := tx.Exec("UPDATE chores SET state = $3 WHERE id = $1 AND scope = $2",
		c.ID, string(c.Scope), string(state))
	if err == nil && n == 0 {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("background: save %s: %w", c.Kind, err)
	}
	return nil
}

// ErrGone reports a task that was dropped while it was done, or moved to another scope, for which
// it is to be done anew.
var ErrGone = errors.New("it is not to be done any more")

// Exists reports whether c is still to be done: nil, or [ErrGone].
func (Store) Exists(tx *store.Tx, c *Task) error {
	var id int64
	err := tx.QueryRow("SELECT id FROM chores WHERE id = $1 AND scope = $2", c.ID, string(c.Scope)).
		Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("background: read %s: %w", c.Kind, err)
	}
	return nil
}

// Told notes that who waits for c has heard of it. Whoever has come to wait meanwhile has not.
func (Store) Told(tx *store.Tx, c *Task) error {
	_, err := tx.Exec("UPDATE chores SET tell = '' WHERE id = $1 AND tell = $2", c.ID, c.tell)
	if err != nil {
		return fmt.Errorf("background: tell of %s: %w", c.Kind, err)
	}
	return nil
}

// Done notes that c is done. If it was put again meanwhile it begins anew, at a time, or at once if
// somebody waits for it.
func (Store) Done(tx *store.Tx, c *Task, again time.Time) error {
	_, err := tx.Exec("DELETE FROM chores WHERE id = $1 AND scope = $3 AND puts = $2",
		c.ID, c.puts, string(c.Scope))
	if err != nil {
		return fmt.Errorf("background: end %s: %w", c.Kind, err)
	}
	return Store{}.Again(tx, c, nil, again)
}

// Again lets c go on from a state: at a time, or at once if somebody has come to wait for it.
func (Store) Again(tx *store.Tx, c *Task, state []byte, due time.Time) error {
	_, err := tx.Exec(`UPDATE chores SET state = $3, attempts = 0,
		due_ms = CASE WHEN tell IN ('', $5) THEN $4 ELSE due_ms END WHERE id = $1 AND scope = $2`,
		c.ID, string(c.Scope), string(state), due.UnixMilli(), c.tell)
	if err != nil {
		return fmt.Errorf("background: go on with %s: %w", c.Kind, err)
	}
	return nil
}

// Later puts c off after it has failed, but not for a person who has come to wait for it meanwhile.
func (Store) Later(tx *store.Tx, c *Task, due time.Time) error {
	_, err := tx.Exec(`UPDATE chores SET
		attempts = CASE WHEN tell IN ('', $4) THEN attempts + 1 ELSE 0 END,
		due_ms = CASE WHEN tell IN ('', $4) THEN $3 ELSE due_ms END WHERE id = $1 AND scope = $2`,
		c.ID, string(c.Scope), due.UnixMilli(), c.tell)
	if err != nil {
		return fmt.Errorf("background: put off %s: %w", c.Kind, err)
	}
	return nil
}

// Drop removes the tasks about a scope, except for those that erase.
func (Store) Drop(tx *store.Tx, s memory.Scope) error {
	_, err := tx.Exec("DELETE FROM chores WHERE scope = $1 AND kind <> 'erase'", string(s))
	if err != nil {
		return fmt.Errorf("background: drop those of %s: %w", s, err)
	}
	return nil
}

// Merging returns the scopes whose files are still to go to those of a scope.
func (Store) Merging(q store.Queryer, s memory.Scope) ([]memory.Scope, error) {
	return store.Collect(q, "background: read", func(scan store.Scan, from *memory.Scope) error {
		return scan(from)
	}, "SELECT session FROM chores WHERE kind = 'merge' AND scope = $1", string(s))
}

// Move makes the tasks about a scope those of another one, which may have the same already. What
// erases is about what was, and stays.
func (Store) Move(tx *store.Tx, from, to memory.Scope) error {
	_, err := tx.Exec(`DELETE FROM chores WHERE scope = $1 AND EXISTS (SELECT 1 FROM chores o
		WHERE o.scope = $2 AND o.kind = chores.kind AND o.session = chores.session
			AND o.ref = chores.ref) AND kind <> 'erase'`, string(from), string(to))
	if err == nil {
		// The result of a task about all of a scope holds for that one only.
		_, err = tx.Exec(`UPDATE chores SET scope = $2,
			state = CASE WHEN session = '' AND kind = 'dream' THEN '' ELSE state END
			WHERE scope = $1 AND kind <> 'erase'`,
			string(from), string(to))
	}
	if err != nil {
		return fmt.Errorf("background: move those of %s: %w", from, err)
	}
	return nil
}

// CountDue returns how many tasks are due.
func (Store) CountDue(q store.Queryer, now time.Time) (n int, err error) {
	err = q.QueryRow("SELECT count(*) FROM chores WHERE due_ms <= $1", now.UnixMilli()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("background: count: %w", err)
	}
	return n, nil
}
