package bus

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gateway/store"
)

// An Inbox holds the messages that were acknowledged to their platform, until a turn has answered
// them.
//
// A row is first waiting, then claimed by a turn (state "taken"), then done. It is dropped instead
// if the gateway gives it up and tells the sender. A held row is not waiting yet: see
// [Inbox.PutHeld]. The methods of Inbox are safe for concurrent use.
type Inbox struct {
	sessionScopes
	wake  Signal
	fresh handover[freshMessage]
}

// NewInbox returns an Inbox.
func NewInbox() *Inbox { return &Inbox{wake: NewSignal()} }

// A Received is a message in the inbox.
type Received struct {
	Seq     int64 // position in the order of arrival, over all chats
	Message InboundMessage
	At      time.Time // when it was accepted
	Crashes int       // how many processes crashed while working on it
}

// Came returns the position of r in the order in which the messages came. It differs from Seq if r
// was held.
func (r *Received) Came() int64 { return cmp.Or(r.Message.Origin.Held, r.Seq) }

// Put stores m and reports whether it is new; a message that is already there stays as it is. After
// the commit the caller must call [Inbox.Wake].
func (in *Inbox) Put(tx *store.Tx, m InboundMessage, now time.Time) (bool, error) {
	if err := in.setSession(tx, &m); err != nil {
		return false, err
	}
	return insert(tx, &in.fresh, m, "waiting", now)
}

// insert stores m with the given state and reports whether it is new.
func insert(
	tx *store.Tx, fresh *handover[freshMessage], m InboundMessage, state string, now time.Time,
) (bool, error) {
	tx.WaitForDiskAtReturn() // then the platform won't deliver it again
	body, err := json.Marshal(m)
	if err != nil {
		return false, fmt.Errorf("bus: store message of %s in inbox: %w", m.From, err)
	}
	id, err := addRow(tx, &m, state, body, now)
	if errors.Is(err, sql.ErrNoRows) {
		if free, err := freeID(tx, &m); err != nil || !free {
			return false, err
		}
		id, err = addRow(tx, &m, state, body, now)
	}
	if err != nil {
		return false, fmt.Errorf("bus: store message of %s in inbox: %w", m.From, err)
	}
	row := freshMessage{body, time.UnixMilli(now.UnixMilli())}
	if state != "waiting" {
		row.body = nil
	}
	tx.After(func() { fresh.put(id, row, len(row.body)) })
	return true, nil
}

// addRow inserts a row and returns its id. It reports [sql.ErrNoRows] if a message of the chat has
// the ID of m already.
func addRow(
	tx *store.Tx, m *InboundMessage, state string, body []byte, now time.Time,
) (id int64, err error) {
	err = tx.QueryRow(`INSERT INTO inbox
			(account, chat, thread, message, state, body, received_ms, origin, parent, person, shared)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (account, chat, message) DO NOTHING RETURNING id`,
		m.From.Account, m.From.Chat, m.From.Thread, m.ID, state, string(body), now.UnixMilli(),
		m.Origin.Kind.String(), m.Origin.Parent.String(), m.Person, m.Group).Scan(&id)
	return id, err
}

// Wake tells the reader of [Inbox.C] that there may be new messages.
func (in *Inbox) Wake() { in.wake.Ring() }

// C receives a value after [Inbox.Wake]. It supports one reader and is never closed.
func (in *Inbox) C() <-chan struct{} { return in.wake }

// ReadLimit is the maximum number of rows that [Inbox.Waiting] and [Outbox.Open] return. The SQL
// statements repeat it as a literal: with a parameter as its LIMIT, SQLite would compile the
// statement again at each call.
const ReadLimit = 256

// Waiting returns up to [ReadLimit] waiting messages whose Seq is above after, in order. If nothing
// else fails, its error holds a [store.RowError] for each message that can't be read.
func (in *Inbox) Waiting(q store.Queryer, after int64) ([]Received, error) {
	return readInbox(q, isWaiting+" AND id > $1 ORDER BY id LIMIT 256", after)
}

// Newest returns the Seq of the newest message, or 0 if there never was one.
func (in *Inbox) Newest(q store.Queryer) (seq int64, err error) {
	err = q.QueryRow("SELECT COALESCE(max(id), 0) FROM inbox").Scan(&seq)
	return seq, store.Wrap(err, "bus: read inbox")
}

// ClaimedBy returns the messages that a turn has claimed, in order.
func (in *Inbox) ClaimedBy(q store.Queryer, turn int64) ([]Received, error) {
	return readInbox(q, "state = 'taken' AND turn = $1 ORDER BY id", turn)
}

// A TaskMessage is the unfinished task of a sub-agent.
type TaskMessage struct {
	Received
	Waiting bool // no turn has claimed it yet
}

// Tasks returns the unfinished tasks that the session parent gave to sub-agents, in order.
func (in *Inbox) Tasks(q store.Queryer, parent Session) ([]TaskMessage, error) {
	var list []TaskMessage
	for _, state := range []string{"taken", "waiting"} { // each state has an index with few rows
		found, err := readInbox(q, "state = '"+state+
			"' AND origin = 'task' AND parent = $1 ORDER BY id", parent.String())
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			list = append(list, TaskMessage{r, state == "waiting"})
		}
	}
	return list, nil
}

// Outcomes returns the outcomes for the session parent that no turn has claimed yet, in order.
func (in *Inbox) Outcomes(q store.Queryer, parent Session) (list []Received, err error) {
	return readInbox(q, "state = 'waiting' AND origin = 'outcome' AND parent = $1 ORDER BY id",
		parent.String())
}

// TaskID returns the ID of the message that gives a sub-agent the task id of the session parent.
func TaskID(parent Session, id string) string { return "task:" + parent.String() + ":" + id }

// OutcomeID returns the ID of the message that reports the outcome of the task id to parent.
func OutcomeID(parent Session, id string) string {
	return "outcome:" + parent.String() + ":" + id
}

// isWaiting finds the waiting messages in order. Waiting messages have no turn; the condition on
// turn lets the index return them in order.
const isWaiting = "state = 'waiting' AND turn = 0"

// readInbox returns the messages for which an SQL condition holds.
func readInbox(q store.Queryer, condition string, args ...any) ([]Received, error) {
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
	}, "SELECT id, body, received_ms, crashes FROM inbox WHERE "+condition, args...)
}

// SetAside gives a waiting or held message that can't be read the state "bad". Afterwards only
// commands for people read the message.
func (in *Inbox) SetAside(tx *store.Tx, seq int64) error {
	_, err := setInbox(tx, "UPDATE inbox SET state = 'bad' "+
		"WHERE id = $1 AND state IN ('waiting', 'held')", seq)
	return err
}

// Claim binds a waiting message to a turn. It reports false if the message is no longer waiting.
func (in *Inbox) Claim(tx *store.Tx, seq, turn int64) (bool, error) {
	return setInbox(tx, "UPDATE inbox SET state = 'taken', turn = $2 "+
		"WHERE id = $1 AND state = 'waiting'", seq, turn)
}

// Finish marks the messages that a turn has claimed as done.
func (in *Inbox) Finish(tx *store.Tx, turn int64) error {
	_, err := setInbox(tx, "UPDATE inbox SET state = 'done' "+
		"WHERE turn = $1 AND state = 'taken'", turn)
	return err
}

// Answer marks a waiting message that needs no turn as done, such as a command. It reports false if
// the message is no longer waiting.
func (in *Inbox) Answer(tx *store.Tx, seq int64) (bool, error) {
	return setInbox(tx, "UPDATE inbox SET state = 'done' WHERE id = $1 AND state = 'waiting'", seq)
}

// Drop gives up a waiting message; the caller must tell its sender. It reports false if the message
// is no longer waiting.
func (in *Inbox) Drop(tx *store.Tx, seq int64) (bool, error) {
	return setInbox(tx, "UPDATE inbox SET state = 'dropped' WHERE id = $1 AND state = 'waiting'", seq)
}

func setInbox(tx *store.Tx, query string, args ...any) (bool, error) {
	n, err := tx.Exec(query, args...)
	return n > 0, store.Wrap(err, "bus: change inbox")
}

// Erase deletes messages of a chat with all its threads, up to the Seq upTo. Each call examines a
// bounded number of rows after the given id and returns the id for the next call, or upTo when it
// is done.
func (in *Inbox) Erase(tx *store.Tx, a Address, after, upTo int64) (next int64, err error) {
	next, err = store.EraseStep(tx, "inbox", after, upTo, "account = $3 AND chat = $4",
		a.Account, a.Chat)
	return next, store.Wrap(err, "bus: erase %s", a)
}

// Conditions of messages of a chat, up to an id, that no turn has claimed.
const (
	waitingInChat = isWaiting + " AND account = $1 AND chat = $2 AND id <= $3"
	heldInChat    = "state = 'held' AND account = $1 AND chat = $2 AND id <= $3"
)

// DropAll gives up the waiting and the held messages of a chat with all its threads, up to the Seq
// upTo, and returns them, except those that can't be read. The caller continues with [Inbox.Erase].
func (in *Inbox) DropAll(tx *store.Tx, a Address, upTo int64) (all []Received, err error) {
	for _, which := range []string{waitingInChat, heldInChat} {
		list, err := readInbox(tx, which+" ORDER BY id", a.Account, a.Chat, upTo)
		if _, bad := store.RowErrors(err); err != nil && !bad {
			return nil, err
		}
		_, err = setInbox(tx, "UPDATE inbox SET state = 'dropped' WHERE "+which, a.Account, a.Chat, upTo)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
