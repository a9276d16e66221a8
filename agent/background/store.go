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

// Migration creates the tables of this package.
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
CREATE INDEX chores_scope ON chores (scope, due_ms, id);`, `
ALTER TABLE chores ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0; -- of processes while it ran`}}

// A Kind is a kind of task.
type Kind string

// The kinds of tasks.
const (
	Archive Kind = "archive" // make notes of the end of a closed conversation
	Compact Kind = "compact" // make notes of the older part of a conversation
	Idle    Kind = "idle"    // the same for an idle conversation
	Dream   Kind = "dream"   // turn the notes of a scope into lasting memory
	Version Kind = "version" // store a version of the documents that the agent has changed
	Log     Kind = "log"     // list the changes of a scope's documents
	Undo    Kind = "undo"    // undo one of these changes
	Merge   Kind = "merge"   // move the files of a scope into another one
	Speak   Kind = "speak"   // make a voice note of an answer
	Export  Kind = "export"  // send a person what is stored about them
	Erase   Kind = "erase"   // delete the files of a scope and the remaining rows
)

// A Work identifies what a task is about. There is at most one task for each Work.
type Work struct {
	Kind    Kind
	Scope   memory.Scope
	Session string
	Ref     int64
}

// A Task is a background task.
type Task struct {
	Work
	ID    int64
	State []byte // state passed to [Store.Save] last; nil at first

	// Notice is the message, still without text, to the person who waits for the task; or nil.
	Notice *bus.OutboundMessage

	Attempts int // number of failed attempts
	Crashes  int // number of processes that may have crashed because of it
	puts     int64
	tell     string // Notice in its stored form
}

// Store reads and writes tasks. It has no state of its own.
type Store struct{}

// Put adds a task that is due at a given time. If there is already a task for the same Work, it
// keeps its state, becomes due no later than due, and tells the person of the new task, if any.
func (Store) Put(tx *store.Tx, c Task, due time.Time) error {
	tell := ""
	if c.Notice != nil {
		text, err := json.Marshal(c.Notice)
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
	return store.Wrap(err, "background: put %s", c.Kind)
}

// IsAwaited reports whether somebody waits for a task that has not failed yet.
func (Store) IsAwaited(q store.Queryer, w Work) (is bool, err error) {
	err = q.QueryRow(`SELECT EXISTS (SELECT 1 FROM chores WHERE kind = $1 AND scope = $2
		AND session = $3 AND ref = $4 AND tell <> '' AND attempts = 0)`,
		string(w.Kind), string(w.Scope), w.Session, w.Ref).Scan(&is)
	return is, store.Wrap(err, "background: read %s", w.Kind)
}

// Due returns the next due task of each scope, voice notes last and longest due first, for a
// limited number of scopes: tasks of a scope run one after another and don't hold up other scopes.
// If nothing else fails, its error holds a [store.RowError] for each task that can't be read.
func (Store) Due(q store.Queryer, now time.Time) ([]Task, error) {
	return store.Collect(q, "background: read", func(scan store.Scan, c *Task) error {
		err := scan(&c.ID, &c.Kind, &c.Scope, &c.Session, &c.Ref, &c.State, &c.tell, &c.puts,
			&c.Attempts, &c.Crashes)
		if err != nil {
			return err
		}
		if c.tell != "" {
			if err := json.Unmarshal([]byte(c.tell), &c.Notice); err != nil {
				return &store.RowError{Table: "chores", ID: c.ID, Err: err}
			}
		}
		if len(c.State) == 0 {
			c.State = nil
		}
		return nil
	}, `SELECT id, kind, scope, session, ref, state, tell, puts, attempts, crashes
		FROM chores WHERE due_ms <= $1 AND NOT EXISTS (SELECT 1 FROM chores o
			WHERE o.scope = chores.scope AND o.due_ms <= $1 AND (o.kind = 'speak', o.due_ms, o.id)
				< (chores.kind = 'speak', chores.due_ms, chores.id))
		ORDER BY kind = 'speak', due_ms, id LIMIT 32`, now.UnixMilli())
}

// ClearNotice removes the unreadable address of a task, so that nobody hears of its end. The task
// itself is still done.
func (Store) ClearNotice(tx *store.Tx, id int64) error {
	_, err := tx.Exec("UPDATE chores SET tell = '' WHERE id = $1", id)
	return store.Wrap(err, "background: mend %d", id)
}

// Next returns when the next task after a time is due. It returns false if there is none.
func (Store) Next(q store.Queryer, after time.Time) (due time.Time, ok bool, err error) {
	var at sql.NullInt64
	err = q.QueryRow("SELECT min(due_ms) FROM chores WHERE due_ms > $1", after.UnixMilli()).Scan(&at)
	return time.UnixMilli(at.Int64), at.Valid, store.Wrap(err, "background: read")
}

// Least returns the smallest Ref among the tasks of a kind. It returns false if there are none.
func (Store) Least(q store.Queryer, k Kind) (ref int64, ok bool, err error) {
	var least sql.NullInt64
	err = q.QueryRow("SELECT min(ref) FROM chores WHERE kind = $1", string(k)).Scan(&least)
	return least.Int64, least.Valid, store.Wrap(err, "background: read")
}

// Save stores the progress of c. It reports [ErrGone] if c no longer exists.
func (Store) Save(tx *store.Tx, c *Task, state []byte) error {
	n, err := tx.Exec("UPDATE chores SET state = $3 WHERE id = $1 AND scope = $2",
		c.ID, string(c.Scope), string(state))
	if err == nil && n == 0 {
		err = ErrGone
	}
	return store.Wrap(err, "background: save %s", c.Kind)
}

// ErrGone reports a task that was dropped while it was running. It also reports a task that moved
// to another scope, where it runs again from the beginning.
var ErrGone = errors.New("the task no longer exists")

// NoticeOf returns the message to the person who waits for c, still without text, or nil if nobody
// waits any more. It reports [ErrGone] if c no longer exists.
func (Store) NoticeOf(q store.Queryer, c *Task) (*bus.OutboundMessage, error) {
	var tell string
	err := q.QueryRow("SELECT tell FROM chores WHERE id = $1 AND scope = $2", c.ID,
		string(c.Scope)).Scan(&tell)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrGone
	}
	if err != nil || tell == "" {
		return nil, store.Wrap(err, "background: read %s", c.Kind)
	}
	return c.Notice, nil
}

// TakeNotices removes the messages to a chat from the tasks of a scope, and returns them. Nobody in
// the chat hears of the end of these tasks any more, even if they run already.
func (Store) TakeNotices(
	tx *store.Tx, s memory.Scope, chat bus.Address,
) (list []bus.OutboundMessage, err error) {
	tasks, err := store.Collect(tx, "background: read", func(scan store.Scan, c *Task) error {
		if err := scan(&c.ID, &c.tell); err != nil {
			return err
		}
		_ = json.Unmarshal([]byte(c.tell), &c.Notice) // one that can't be read is never sent
		return nil
	}, "SELECT id, tell FROM chores WHERE scope = $1 AND tell <> '' ORDER BY id", string(s))
	for i := 0; i < len(tasks) && err == nil; i++ {
		if out := tasks[i].Notice; out != nil && ChatOf(out.To) == chat {
			list = append(list, *out)
			err = Store{}.ClearNotice(tx, tasks[i].ID)
		}
	}
	return list, err
}

// MarkNotified records that the person who waits for c has an answer. It does not cover a person
// who has begun to wait since.
func (Store) MarkNotified(tx *store.Tx, c *Task) error {
	_, err := tx.Exec("UPDATE chores SET tell = '' WHERE id = $1 AND tell = $2", c.ID, c.tell)
	return store.Wrap(err, "background: tell of %s", c.Kind)
}

// Done ends c. If c was added again in the meantime, it starts from the beginning at the time
// again, or immediately if a person waits for it.
func (Store) Done(tx *store.Tx, c *Task, again time.Time) error {
	_, err := tx.Exec("DELETE FROM chores WHERE id = $1 AND scope = $3 AND puts = $2",
		c.ID, c.puts, string(c.Scope))
	if err != nil {
		return fmt.Errorf("background: end %s: %w", c.Kind, err)
	}
	return Store{}.Continue(tx, c, nil, again)
}

// Continue lets c continue from a state, at a given time or immediately if a person has begun to
// wait for it.
func (Store) Continue(tx *store.Tx, c *Task, state []byte, due time.Time) error {
	_, err := tx.Exec(`UPDATE chores SET state = $3, attempts = 0, crashes = 0,
		due_ms = CASE WHEN tell IN ('', $5) THEN $4 ELSE due_ms END WHERE id = $1 AND scope = $2`,
		c.ID, string(c.Scope), string(state), due.UnixMilli(), c.tell)
	return store.Wrap(err, "background: continue %s", c.Kind)
}

// MarkStarted counts a crash against c before it runs. [Store.MarkLeft], [Store.Continue] and
// [Store.Postpone] take it back, because then there was none.
func (Store) MarkStarted(tx *store.Tx, c *Task) error {
	_, err := tx.Exec("UPDATE chores SET crashes = crashes + 1 WHERE id = $1", c.ID)
	return store.Wrap(err, "background: start %s", c.Kind)
}

// MarkLeft records that c was left to a later run without a crash.
func (Store) MarkLeft(tx *store.Tx, c *Task) error {
	_, err := tx.Exec("UPDATE chores SET crashes = crashes - 1 WHERE id = $1 AND crashes > 0", c.ID)
	return store.Wrap(err, "background: leave %s", c.Kind)
}

// Postpone postpones c after a failure, unless a person has begun to wait for it since.
func (Store) Postpone(tx *store.Tx, c *Task, due time.Time) error {
	_, err := tx.Exec(`UPDATE chores SET crashes = CASE WHEN crashes > 0 THEN crashes - 1 ELSE 0 END,
		attempts = CASE WHEN tell IN ('', $4) THEN attempts + 1 ELSE 0 END,
		due_ms = CASE WHEN tell IN ('', $4) THEN $3 ELSE due_ms END WHERE id = $1 AND scope = $2`,
		c.ID, string(c.Scope), due.UnixMilli(), c.tell)
	return store.Wrap(err, "background: postpone %s", c.Kind)
}

// SetBack moves the tasks that are not due yet after the clock was set back from a time to another
// one, so that they wait no longer than before.
func (Store) SetBack(tx *store.Tx, from, to time.Time) error {
	_, err := tx.Exec(`UPDATE chores SET due_ms = CASE WHEN due_ms - $2 > $1 THEN due_ms - $2
		ELSE $1 END WHERE due_ms > $1`, to.UnixMilli(), from.UnixMilli()-to.UnixMilli())
	return store.Wrap(err, "background: move what is due")
}

// Limit makes all tasks due by a time. Dream stays, because it may wait for longer than others, and
// comes earlier when there is something new.
func (Store) Limit(tx *store.Tx, due time.Time) error {
	_, err := tx.Exec("UPDATE chores SET due_ms = $1 WHERE due_ms > $1 AND kind <> 'dream'",
		due.UnixMilli())
	return store.Wrap(err, "background: limit what is due")
}

// Drop deletes the tasks of a scope, except tasks that erase data.
func (Store) Drop(tx *store.Tx, s memory.Scope) error {
	_, err := tx.Exec("DELETE FROM chores WHERE scope = $1 AND kind <> 'erase'", string(s))
	return store.Wrap(err, "background: drop tasks of %s", s)
}

// Merging returns the scopes whose files still have to move into the scope s.
func (Store) Merging(q store.Queryer, s memory.Scope) ([]memory.Scope, error) {
	return store.Collect(q, "background: read", func(scan store.Scan, from *memory.Scope) error {
		return scan(from)
	}, "SELECT session FROM chores WHERE kind = 'merge' AND scope = $1", string(s))
}

// Move moves the tasks of a scope to another one, which may already have a task for the same Work.
// Then only a task for which somebody waits moves, under a Ref of its own, because a task has one
// answer. Tasks that erase data stay, because they are about the old data.
func (Store) Move(tx *store.Tx, from, to memory.Scope) error {
	const doubled = `EXISTS (SELECT 1 FROM chores o WHERE o.scope = $2 AND o.kind = chores.kind
		AND o.session = chores.session AND o.ref = chores.ref)`
	_, err := tx.Exec("DELETE FROM chores WHERE scope = $1 AND kind <> 'erase' AND tell = '' AND "+
		doubled, string(from), string(to))
	if err == nil {
		_, err = tx.Exec("UPDATE chores SET ref = id WHERE scope = $1 AND kind <> 'erase' AND "+doubled,
			string(from), string(to))
	}
	if err == nil {
		// The state of a task about a whole scope is valid for that scope only.
		_, err = tx.Exec(`UPDATE chores SET scope = $2,
			state = CASE WHEN session = '' AND kind = 'dream' THEN '' ELSE state END
			WHERE scope = $1 AND kind <> 'erase'`,
			string(from), string(to))
	}
	return store.Wrap(err, "background: move tasks of %s", from)
}

// CountDue returns the number of due tasks.
func (Store) CountDue(q store.Queryer, now time.Time) (n int, err error) {
	err = q.QueryRow("SELECT count(*) FROM chores WHERE due_ms <= $1", now.UnixMilli()).Scan(&n)
	return n, store.Wrap(err, "background: count")
}
