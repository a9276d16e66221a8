package bus

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gateway/store"
)

// An Inbox holds the messages that platforms were told we have, until a turn has answered them.
//
// A row is waiting, then taken by a turn, then done; or dropped, when the sender was told so.
// Its methods may be called concurrently.
type Inbox struct {
	wake  signal
	fresh handover[freshMessage]
}

// NewInbox returns an Inbox.
func NewInbox() *Inbox { return &Inbox{wake: newSignal()} }

// A Received is a message in the inbox.
type Received struct {
	Seq     int64 // its place in the order of arrival, over all chats
	Message InboundMessage
	At      time.Time // when it was accepted
	Crashes int       // processes that have ended without a word while they worked on it
}

// Put adds m, and reports whether it is new: a message that was put before is left alone.
// After the commit, [Inbox.Wake] must be called.
func (in *Inbox) Put(tx *store.Tx, m InboundMessage, now time.Time) (bool, error) {
	return in.insert(tx, m, "waiting", now)
}

func (in *Inbox) insert(
	tx *store.Tx, m InboundMessage, state string, now time.Time,
) (bool, error) {
	tx.Hard() // the platform forgets it after that
	body, err := json.Marshal(m)
	if err != nil {
		return false, fmt.Errorf("bus: put %s in inbox: %w", m.From, err)
	}
	var id int64
	err = tx.QueryRow(`INSERT INTO inbox
			(account, chat, thread, message, state, body, received_ms, origin, parent, person, shared)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (account, chat, message) DO NOTHING RETURNING id`,
		m.From.Account, m.From.Chat, m.From.Thread, m.ID, state, string(body), now.UnixMilli(),
		m.Origin.Kind.String(), m.Origin.Parent, m.Person, m.Group).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bus: put %s in inbox: %w", m.From, err)
	}
	row := freshMessage{body, time.UnixMilli(now.UnixMilli())}
	if state != "waiting" {
		row.body = nil
	}
	tx.After(func() { in.fresh.put(id, row, len(row.body)) })
	return true, nil
}

// Wake tells the reader of [Inbox.C] that there may be new messages.
func (in *Inbox) Wake() { in.wake.ring() }

// C receives after Wake. It has one reader and is never closed.
func (in *Inbox) C() <-chan struct{} { return in.wake }

// ReadLimit is how many rows [Inbox.Waiting] and [Outbox.Open] return at most. It stands in the
// statements: SQLite compiles one anew each time its LIMIT is a parameter.
const ReadLimit = 256

// Waiting returns up to [ReadLimit] waiting messages whose Seq is above after, in their order. Its
// error has a [store.RowError] for each message that can't be read, if nothing else is wrong.
func (in *Inbox) Waiting(q store.Queryer, after int64) ([]Received, error) {
	return in.query(q, "SELECT "+receivedColumns+" FROM inbox "+
		"WHERE state = 'waiting' AND id > $1 ORDER BY id LIMIT 256", after)
}

// Newest returns the Seq of the newest message, or 0 if there never was one.
func (in *Inbox) Newest(q store.Queryer) (seq int64, err error) {
	if err := q.QueryRow("SELECT COALESCE(max(id), 0) FROM inbox").Scan(&seq); err != nil {
		return 0, fmt.Errorf("bus: read inbox: %w", err)
	}
	return seq, nil
}

// ClaimedBy returns the messages that a turn has taken, in their order.
func (in *Inbox) ClaimedBy(q store.Queryer, turn int64) ([]Received, error) {
	return in.query(q, "SELECT "+receivedColumns+" FROM inbox "+
		"WHERE state = 'taken' AND turn = $1 ORDER BY id", turn)
}

// A TaskMessage is the task of a sub-agent that has not finished.
type TaskMessage struct {
	Received
	Waiting bool // nobody has begun with it
}

// Tasks returns the tasks that a session has given and that are not finished, in their order.
func (in *Inbox) Tasks(q store.Queryer, parent string) ([]TaskMessage, error) {
	var list []TaskMessage
	for _, state := range []string{"taken", "waiting"} { // each has an index of few rows
		found, err := in.query(q, "SELECT "+receivedColumns+" FROM inbox WHERE state = '"+state+
			"' AND origin = 'task' AND parent = $1 ORDER BY id", parent)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			list = append(list, TaskMessage{r, state == "waiting"})
		}
	}
	return list, nil
}

// Outcomes returns the outcomes for a session that no turn has taken yet, in their order.
func (in *Inbox) Outcomes(q store.Queryer, parent string) (list []Received, err error) {
	return in.query(q, "SELECT "+receivedColumns+" FROM inbox WHERE state = 'waiting' "+
		"AND origin = 'outcome' AND parent = $1 ORDER BY id", parent)
}

// TaskID returns the ID of the message with a task that a session gives.
func TaskID(parent, id string) string { return "task:" + parent + ":" + id }

// OutcomeID returns the ID of the message with the outcome of such a task.
func OutcomeID(parent, id string) string { return "outcome:" + parent + ":" + id }

const receivedColumns = "id, body, received_ms, crashes"

func (in *Inbox) query(q store.Queryer, query string, args ...any) ([]Received, error) {
	return store.Collect(q, "bus: read inbox", func(scan store.Scan, r *Received) error {
		var body []byte
		var at int64
		if err := scan(&r.Seq, &body, &at, &r.Crashes); err != nil {
			return err
		}
		if err := json.Unmarshal(body, &r.Message); err != nil {
			return &store.RowError{Table: "inbox", ID: r.Seq, Err: err}
		}
		r.At = time.UnixMilli(at)
		return nil
	}, query, args...)
}

// SetAside marks a waiting message that can't be read, so that nobody tries again. Its state is bad
// from then on: only people look at it.
func (in *Inbox) SetAside(tx *store.Tx, seq int64) error {
	_, err := setInbox(tx, "UPDATE inbox SET state = 'bad' WHERE id = $1 AND state = 'waiting'", seq)
	return err
}

// Rename gives the messages that came to an account other IDs, so that others may come with the IDs
// that they had: the account is another one of the platform's from now on. Messages that the agent
// has written to itself keep theirs.
func (in *Inbox) Rename(tx *store.Tx, account string, now time.Time) error {
	_, err := setInbox(tx, "UPDATE inbox SET message = $2 || message "+
		"WHERE account = $1 AND origin = 'person'",
		account, fmt.Sprintf("before %d: ", now.UnixMilli()))
	return err
}

// Claim binds a waiting message to a turn. It reports false if the message waits no more.
func (in *Inbox) Claim(tx *store.Tx, seq, turn int64) (bool, error) {
	return setInbox(tx, "UPDATE inbox SET state = 'taken', turn = $2 "+
		"WHERE id = $1 AND state = 'waiting'", seq, turn)
}

// Finish marks the messages that a turn has taken as done.
func (in *Inbox) Finish(tx *store.Tx, turn int64) error {
	_, err := setInbox(tx, "UPDATE inbox SET state = 'done' "+
		"WHERE turn = $1 AND state = 'taken'", turn)
	return err
}

// Answer marks a waiting message as done without a turn: a command. It reports false if it
// waits no more.
func (in *Inbox) Answer(tx *store.Tx, seq int64) (bool, error) {
	return setInbox(tx, "UPDATE inbox SET state = 'done' WHERE id = $1 AND state = 'waiting'", seq)
}

// Drop gives up a waiting message, whose sender must be told. It reports false if it waits no more.
func (in *Inbox) Drop(tx *store.Tx, seq int64) (bool, error) {
	return setInbox(tx, "UPDATE inbox SET state = 'dropped' WHERE id = $1 AND state = 'waiting'", seq)
}

func setInbox(tx *store.Tx, query string, args ...any) (bool, error) {
	n, err := tx.Exec(query, args...)
	if err != nil {
		return false, fmt.Errorf("bus: change inbox: %w", err)
	}
	return n > 0, nil
}

// Erase deletes what has come from a chat, all its threads together, up to a message. It looks at
// some rows after an id only, and returns the id after which to go on, upTo at the end.
func (in *Inbox) Erase(tx *store.Tx, a Address, after, upTo int64) (next int64, err error) {
	next, err = store.EraseStep(tx, "inbox", after, upTo, "account = $3 AND chat = $4",
		a.Account, a.Chat)
	if err != nil {
		return 0, fmt.Errorf("bus: erase %s: %w", a, err)
	}
	return next, nil
}

// DirectChats returns the chats in which a person has written alone, as far as the inbox knows.
func (in *Inbox) DirectChats(q store.Queryer, person int64) ([]Address, error) {
	return store.Collect(q, "bus: read inbox", func(scan store.Scan, a *Address) error {
		return scan(&a.Account, &a.Chat)
	}, `SELECT DISTINCT account, chat FROM inbox
		WHERE person = $1 AND person <> 0 AND NOT shared ORDER BY account, chat`, person)
}

// DropAll gives up what waits of a chat, all its threads together, up to a message: [Inbox.Erase]
// follows.
func (in *Inbox) DropAll(tx *store.Tx, a Address, upTo int64) error {
	_, err := setInbox(tx, `UPDATE inbox SET state = 'dropped'
		WHERE account = $1 AND chat = $2 AND id <= $3 AND state = 'waiting'`,
		a.Account, a.Chat, upTo)
	return err
}
