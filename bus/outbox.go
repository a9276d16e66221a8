package bus

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gateway/store"
)

// An Outbox holds the messages that the agent sends, until the platform has them.
//
// A row is first waiting, then sending, then sent. It is dead if it could not be delivered, dropped
// if a person gave it up, and bad if it can't be read. The methods of Outbox are safe for
// concurrent use. Methods that read rows return all readable ones. If nothing else fails, their
// error holds a [store.RowError] for each row that can't be read.
type Outbox struct {
	// Idle reports whether the router would send a message to an address at once. If so, Add stores
	// the message as Sending, which saves the router a transaction. Add calls Idle within
	// transactions, so Idle must not wait for one. It may be nil.
	Idle atomic.Pointer[func(to Address) bool]

	wake  Signal
	fresh handover[freshDelivery]
}

// NewOutbox returns an Outbox.
func NewOutbox() *Outbox { return &Outbox{wake: NewSignal()} }

// A DeliveryState says how far a [Delivery] has got.
type DeliveryState string

// The states of a delivery.
const (
	Waiting DeliveryState = "waiting" // to be sent
	Sending DeliveryState = "sending" // a part is under way, or was when the process ended
	Sent    DeliveryState = "sent"
	Dead    DeliveryState = "dead"    // given up; a person can retry or drop it
	Dropped DeliveryState = "dropped" // given up by a person
)

// A Delivery is a message in the outbox and the state of its delivery.
type Delivery struct {
	ID        int64 // increases in the order of the messages
	Message   OutboundMessage
	State     DeliveryState
	Parts     []string // texts of the parts; empty if it is not split (yet)
	IDs       []string // platform's ids of the sent parts
	Attempts  int      // failed attempts at the current part
	Uncertain int      // attempts whose outcome is unknown
	Crashes   int      // consecutive attempts during which the process crashed
	Error     string   // error of the last failed attempt
	Created   time.Time
	Changed   time.Time // when the table last changed; zero if the delivery is fresh

	Tried time.Duration // time spent on failed attempts and between them

	// Fresh means that this process has just added the delivery as Sending, and that no attempt to
	// send it has begun. A delivery that was read from the table is never fresh.
	Fresh bool

	key string // common prefix of the idempotency keys of its parts
}

// Key returns the idempotency key of the part with the given index, at most 25 bytes.
func (d *Delivery) Key(part int) string { return d.key + "-" + strconv.Itoa(part) }

// NewKey returns a random idempotency key of 16 bytes. The key is stored with its message. It can't
// be derived from ids or texts: those come again in a new or restored database, or when the same
// question gets the same answer.
func NewKey() string { return strings.ToLower(rand.Text()[:16]) }

// Put adds m, and wakes the reader of [Outbox.C] after the commit.
func (out *Outbox) Put(tx *store.Tx, m OutboundMessage, now time.Time) error {
	_, err := out.Add(tx, m, now)
	return err
}

// Add is like [Outbox.Put] and also returns the id of the delivery.
func (out *Outbox) Add(tx *store.Tx, m OutboundMessage, now time.Time) (id int64, err error) {
	tx.WaitForDisk() // the platform may get it immediately
	d := Delivery{State: Waiting, key: NewKey(), Created: time.UnixMilli(now.UnixMilli())}
	if idle := out.Idle.Load(); idle != nil && (*idle)(m.To) {
		d.State = Sending
	}
	body, err := json.Marshal(m)
	if err == nil {
		err = tx.QueryRow(`INSERT INTO outbox (account, chat, thread, state, body, key, created_ms,
			updated_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $7) RETURNING id`, m.To.Account,
			m.To.Chat, m.To.Thread, string(d.State), string(body), d.key, now.UnixMilli()).Scan(&d.ID)
	}
	if err != nil {
		return 0, fmt.Errorf("bus: store message to %s in outbox: %w", m.To, err)
	}
	d.Message.To, d.Fresh = m.To, d.State == Sending
	tx.After(func() {
		out.fresh.put(d.ID, freshDelivery{d, body}, len(body))
		out.wake.Ring()
	})
	return d.ID, nil
}

// OpenByAccount returns the number of waiting and sending deliveries, by account.
func OpenByAccount(q store.Queryer) (map[string]int, error) {
	return byAccount(q, "state IN ('waiting', 'sending')")
}

// byAccount counts the deliveries for which an SQL condition holds, by account.
func byAccount(q store.Queryer, condition string, args ...any) (map[string]int, error) {
	counts := make(map[string]int)
	err := store.Each(q, "bus: read outbox", func(scan store.Scan) error {
		var account string
		var n int
		err := scan(&account, &n)
		counts[account] = n
		return err
	}, "SELECT account, count(*) FROM outbox WHERE "+condition+" GROUP BY account", args...)
	return counts, err
}

// C receives a value after a commit that added messages. It supports one reader and is never
// closed.
func (out *Outbox) C() <-chan struct{} { return out.wake }

const isOpen = "state IN ('waiting', 'sending')"

// Open returns up to [ReadLimit] deliveries that are waiting or sending and whose id is above
// after, in order.
func (out *Outbox) Open(q store.Queryer, after int64) ([]Delivery, error) {
	return readOutbox(q, isOpen+" AND id > $1 ORDER BY id LIMIT 256", after)
}

// First returns the oldest waiting or sending delivery to a conversation, or nil.
func (out *Outbox) First(q store.Queryer, to Address) (*Delivery, error) {
	return first(readOutbox(q, isOpen+
		" AND account = $1 AND chat = $2 AND thread = $3 ORDER BY id LIMIT 1",
		to.Account, to.Chat, to.Thread))
}

// MaxFirsts is the maximum number of deliveries that [Outbox.NextConversations] returns. The
// statement repeats it: see [ReadLimit].
const MaxFirsts = 32

// NextConversations finds the next conversations of the account of after, by chat and thread, to
// which something is waiting or sending. It returns the oldest such delivery to each, and at most
// [MaxFirsts].
func (out *Outbox) NextConversations(q store.Queryer, after Address) ([]Delivery, error) {
	return readOutbox(q, "id IN (SELECT min(id) "+
		"FROM outbox WHERE "+isOpen+" AND account = $1 AND (chat, thread) > ($2, $3) "+
		"GROUP BY chat, thread ORDER BY chat, thread LIMIT 32) ORDER BY chat, thread",
		after.Account, after.Chat, after.Thread)
}

func first(list []Delivery, err error) (*Delivery, error) {
	if len(list) == 0 {
		return nil, err
	}
	return &list[0], err
}

// LastSent returns the platform's ids of the newest sent message to the conversation of d that
// precedes d. To stay fast it examines only the ten thousand deliveries before d. If it returns
// none, a search for d on the platform goes by the clock.
func (out *Outbox) LastSent(q store.Queryer, d *Delivery) (ids []string, err error) {
	list, err := readOutbox(q, "state = 'sent' AND account = $1 AND chat = $2 AND thread = $3 "+
		"AND id < $4 AND id > $4 - 10000 ORDER BY id DESC LIMIT 1",
		d.Message.To.Account, d.Message.To.Chat, d.Message.To.Thread, d.ID)
	if _, ok := store.RowErrors(err); !ok {
		return nil, err
	}
	if len(list) > 0 {
		ids = list[0].IDs
	}
	return ids, nil
}

// IsOpen reports whether a delivery is still waiting or sending.
func (out *Outbox) IsOpen(q store.Queryer, id int64) (open bool, err error) {
	err = q.QueryRow("SELECT EXISTS (SELECT 1 FROM outbox WHERE id = $1 AND "+isOpen+")", id).
		Scan(&open)
	return open, store.Wrap(err, "bus: read outbox")
}

// UnderWay returns the number of deliveries that were under way when the last process ended, and
// during at least crashes earlier ones that crashed, by account.
func (out *Outbox) UnderWay(q store.Queryer, crashes int) (map[string]int, error) {
	return byAccount(q, isOpen+" AND state = 'sending' AND crashes >= $1", crashes)
}

// Changes returns a number that increases with each [Outbox.Retry] and [Outbox.Drop] of any
// process.
func (out *Outbox) Changes(q store.Queryer) (n int64, err error) {
	err = q.QueryRow("SELECT COALESCE(sum(n), 0) FROM changes WHERE what = 'outbox'").Scan(&n)
	return n, store.Wrap(err, "bus: read changes")
}

// changed records that a person has changed n deliveries.
func changed(tx *store.Tx, n int64) error {
	if n == 0 {
		return nil
	}
	_, err := tx.Exec("INSERT INTO changes (what, n) VALUES ('outbox', 1) " +
		"ON CONFLICT (what) DO UPDATE SET n = changes.n + 1")
	return err
}

// List returns up to limit deliveries in the given state, newest first.
func (out *Outbox) List(q store.Queryer, state DeliveryState, limit int) ([]Delivery, error) {
	query := "state = $1 ORDER BY id DESC LIMIT $2"
	switch state { // an index has these alone, and the plus keeps SQLite from reading all in order
	case Dead:
		query = "state = 'dead' AND " + query
	case Dropped:
		query = "state = 'dropped' AND " + query
	case Waiting, Sending:
		query = isOpen + " AND state = $1 ORDER BY +id DESC LIMIT $2"
	}
	return readOutbox(q, query, string(state), limit)
}

// FindDelivery returns the delivery with the given id, or nil.
func FindDelivery(q store.Queryer, id int64) (*Delivery, error) {
	return first(readOutbox(q, "id = $1", id))
}

// OpenLeaves returns the waiting and sending deliveries that make an account leave a group, in
// order.
func OpenLeaves(q store.Queryer, account string) ([]Delivery, error) {
	list, err := readOutbox(q, isOpen+
		` AND account = $1 AND body LIKE '%"leave":%' ORDER BY id`, account)
	return slices.DeleteFunc(list, func(d Delivery) bool { return d.Message.Leave == nil }), err
}

// readOutbox returns the deliveries for which an SQL condition holds.
func readOutbox(q store.Queryer, condition string, args ...any) ([]Delivery, error) {
	return store.Collect(q, "bus: read outbox", func(scan store.Scan, d *Delivery) error {
		if err := d.scan(scan); err != nil {
			return &store.RowError{Table: "outbox", ID: d.ID, Err: err}
		}
		return nil
	}, "SELECT id, account, chat, thread, state, body, parts, ids, attempts, uncertain, crashes, "+
		"tried_ms, error, key, created_ms, updated_ms FROM outbox WHERE "+condition, args...)
}

// scan reads a row of readOutbox. If it fails, it still sets d.ID if it could read the id.
func (d *Delivery) scan(scan store.Scan) error {
	var body, parts, ids []byte
	var to Address
	var tried, created, changed int64
	err := scan(&d.ID, &to.Account, &to.Chat, &to.Thread, &d.State, &body, &parts, &ids,
		&d.Attempts, &d.Uncertain, &d.Crashes, &tried, &d.Error, &d.key, &created, &changed)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		text []byte
		to   any
	}{{body, &d.Message}, {parts, &d.Parts}, {ids, &d.IDs}} {
		if len(f.text) == 0 {
			continue
		}
		if err := json.Unmarshal(f.text, f.to); err != nil {
			return err
		}
	}
	d.Message.To = to // the row is looked up by this address
	d.Tried, d.Created = time.Duration(tried)*time.Millisecond, time.UnixMilli(created)
	d.Changed = time.UnixMilli(changed)
	return nil
}

// SetAside gives a row that can't be read the state "bad" and stores the reason. Nothing reads the
// row again.
func (out *Outbox) SetAside(tx *store.Tx, row *store.RowError) error {
	_, err := tx.Exec("UPDATE outbox SET state = 'bad', error = $2 WHERE id = $1", row.ID,
		row.Err.Error())
	return store.Wrap(err, "bus: set aside message %d in outbox", row.ID)
}

// Save stores everything of d but its message. It reports false and stores nothing if a person has
// dropped d in the meantime.
func (out *Outbox) Save(tx *store.Tx, d *Delivery, now time.Time) (bool, error) {
	if d.State == Sending && len(d.Parts) > 1 && len(d.IDs) == 0 {
		tx.WaitForDisk() // the split must not change once a part is sent
	}
	n, err := tx.Exec(`UPDATE outbox SET state = $1, parts = $2, ids = $3, attempts = $4,
			uncertain = $5, crashes = $6, tried_ms = $7, error = $8, updated_ms = $9
		WHERE id = $10 AND state IN ('waiting', 'sending')`,
		string(d.State), list(d.Parts), list(d.IDs), d.Attempts, d.Uncertain, d.Crashes,
		d.Tried.Milliseconds(), d.Error, now.UnixMilli(), d.ID)
	return n > 0, store.Wrap(err, "bus: save message %d in outbox", d.ID)
}

// list returns l as JSON, or "" if l is empty.
func list(l []string) string {
	if len(l) == 0 {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(text)
}

// Retry puts a dead delivery back in the queue, or all dead ones if id is 0, and returns the
// number. Parts that were already sent are not sent again.
func (out *Outbox) Retry(tx *store.Tx, id int64, now time.Time) (int64, error) {
	// Start with a full retry budget, or the next failure would end the delivery at once.
	n, err := tx.Exec(`UPDATE outbox SET state = 'waiting', attempts = 0, crashes = 0, tried_ms = 0,
		created_ms = $2, updated_ms = $2 WHERE state = 'dead' AND ($1 = 0 OR id = $1)`,
		id, now.UnixMilli())
	if err == nil {
		err = changed(tx, n)
	}
	return n, store.Wrap(err, "bus: retry in outbox")
}

// Drop gives up the dead or waiting delivery with the given id, or all dead ones if id is 0, and
// returns the number.
func (out *Outbox) Drop(tx *store.Tx, id int64, now time.Time) (int64, error) {
	// A condition with OR would read all deliveries, while all others wait for the transaction.
	n, err := tx.Exec(`UPDATE outbox SET state = 'dropped', updated_ms = $2
		WHERE state IN ('dead', 'waiting', 'sending') AND id IN (SELECT $1 UNION ALL
			SELECT id FROM outbox WHERE state = 'dead' AND $1 = 0)`, id, now.UnixMilli())
	if err == nil {
		err = changed(tx, n)
	}
	return n, store.Wrap(err, "bus: drop from outbox")
}

// Newest returns the id of the newest delivery, or 0 if there never was one.
func (out *Outbox) Newest(q store.Queryer) (id int64, err error) {
	err = q.QueryRow("SELECT COALESCE(max(id), 0) FROM outbox").Scan(&id)
	return id, store.Wrap(err, "bus: read outbox")
}

// DropAll gives up the unsent deliveries to a chat with all its threads, up to the id upTo, and
// returns the number.
func (out *Outbox) DropAll(tx *store.Tx, a Address, upTo int64) (int64, error) {
	n, err := tx.Exec(`UPDATE outbox SET state = 'dropped' WHERE account = $1 AND chat = $2
		AND id <= $3 AND state IN ('waiting', 'sending')`, a.Account, a.Chat, upTo)
	if err == nil {
		err = changed(tx, n)
	}
	return n, store.Wrap(err, "bus: drop messages to %s", a)
}

// HasUnsent reports whether a chat, in any thread, has an unsent delivery with an id up to upTo.
func (out *Outbox) HasUnsent(q store.Queryer, a Address, upTo int64) (bool, error) {
	var open int
	err := q.QueryRow(`SELECT count(*) FROM outbox WHERE account = $1 AND chat = $2 AND id <= $3
		AND state IN ('waiting', 'sending')`, a.Account, a.Chat, upTo).Scan(&open)
	return open > 0, store.Wrap(err, "bus: read outbox of %s", a)
}

// Erase deletes deliveries to a chat with all its threads, up to the id upTo. Each call examines a
// bounded number of rows after the given id and returns the id for the next call, or upTo when it
// is done.
func (out *Outbox) Erase(tx *store.Tx, a Address, after, upTo int64) (next int64, err error) {
	next, err = store.EraseStep(tx, "outbox", after, upTo, "account = $3 AND chat = $4",
		a.Account, a.Chat)
	return next, store.Wrap(err, "bus: erase %s", a)
}
