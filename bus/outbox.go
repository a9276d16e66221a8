package bus

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gateway/store"
)

// An Outbox holds the messages that were promised to a chat, until the platform has them.
//
// A row is waiting, then sending, then sent; or dead, when it could not be delivered; or dropped
// by the owner; or bad, if it can't be read. Its methods may be called concurrently. Those that
// read rows return those that can be read, and with them an error that has a [store.RowError] for
// each of the others, if nothing else is wrong.
type Outbox struct {
	wake  signal
	fresh handover[Delivery]
}

// NewOutbox returns an Outbox.
func NewOutbox() *Outbox { return &Outbox{wake: newSignal()} }

// A DeliveryState says how far a [Delivery] has come.
type DeliveryState string

// The states of a delivery.
const (
	Waiting DeliveryState = "waiting" // to be sent
	Sending DeliveryState = "sending" // a part is on its way, or was when the process ended
	Sent    DeliveryState = "sent"
	Dead    DeliveryState = "dead"    // given up; a person can retry or drop it
	Dropped DeliveryState = "dropped" // by a person
)

// A Delivery is a message in the outbox and how far it has come.
type Delivery struct {
	ID        int64 // grows in the order of the messages
	Message   OutboundMessage
	State     DeliveryState
	Parts     []string // texts of the parts; empty until it was split, or if there is only one
	IDs       []string // platform's ids of the parts that were sent
	Attempts  int      // failed tries of the part under way
	Uncertain int      // tries whose outcome was never known
	Crashes   int      // tries in a row that ended with the process
	Error     string   // of the last failed try
	Created   time.Time

	Tried time.Duration // spent on failed tries, with the time between them

	key string // part of its parts' keys
}

// Key returns the idempotency key of the part with the given index, at most 25 bytes.
func (d *Delivery) Key(part int) string { return d.key + "-" + strconv.Itoa(part) }

// NewKey returns an idempotency key, of 16 bytes. Keys are random, and kept until they are of no
// use: what is made of numbers or of words comes again, in another database, in one that was
// restored, or with the same answer to the same question.
func NewKey() string { return strings.ToLower(rand.Text()[:16]) }

// Put adds m, and wakes the reader of [Outbox.C] after the commit.
func (out *Outbox) Put(tx *store.Tx, m OutboundMessage, now time.Time) error {
	_, err := out.Add(tx, m, now)
	return err
}

// Add is Put for those who want to know the delivery's ID.
func (out *Outbox) Add(tx *store.Tx, m OutboundMessage, now time.Time) (id int64, err error) {
	tx.Hard() // the platform may have it at once
	d := Delivery{State: Waiting, key: NewKey(), Created: time.UnixMilli(now.UnixMilli())}
	body, err := json.Marshal(m)
	if err == nil {
		err = tx.QueryRow(`INSERT INTO outbox (account, chat, thread, state, body, key, created_ms,
			updated_ms) VALUES ($1, $2, $3, 'waiting', $4, $5, $6, $6) RETURNING id`,
			m.To.Account, m.To.Chat, m.To.Thread, string(body), d.key, now.UnixMilli()).Scan(&d.ID)
	}
	if err != nil {
		return 0, fmt.Errorf("bus: put %s in outbox: %w", m.To, err)
	}
	tx.After(func() {
		if json.Unmarshal(body, &d.Message) == nil { // a copy of its own, as the table has it
			d.Message.To = m.To
			out.fresh.put(d.ID, d, len(body))
		}
		out.wake.ring()
	})
	return d.ID, nil
}

// OpenByAccount returns how many deliveries are waiting or sending, by account.
func (*Outbox) OpenByAccount(q store.Queryer) (map[string]int, error) {
	return byAccount(q, "state IN ('waiting', 'sending')")
}

// byAccount counts the deliveries of each account for which a condition holds.
func byAccount(q store.Queryer, condition string) (map[string]int, error) {
	counts := make(map[string]int)
	err := store.Each(q, "bus: read outbox", func(scan store.Scan) error {
		var account string
		var n int
		err := scan(&account, &n)
		counts[account] = n
		return err
	}, "SELECT account, count(*) FROM outbox WHERE "+condition+" GROUP BY account")
	return counts, err
}

// C receives after a commit that has added messages. It has one reader and is never closed.
func (out *Outbox) C() <-chan struct{} { return out.wake }

const (
	deliveryColumns = "id, account, chat, thread, state, body, parts, ids, attempts, uncertain, " +
		"crashes, tried_ms, error, key, created_ms"

	isOpen = "state IN ('waiting', 'sending')"
)

// Open returns up to [ReadLimit] deliveries that are waiting or sending and whose id
// is above after, in their order.
func (out *Outbox) Open(q store.Queryer, after int64) ([]Delivery, error) {
	return queryOutbox(q, "SELECT "+deliveryColumns+" FROM outbox WHERE "+isOpen+
		" AND id > $1 ORDER BY id LIMIT 256", after)
}

// First returns the oldest delivery to a conversation that is waiting or sending, or nil.
func (out *Outbox) First(q store.Queryer, to Address) (*Delivery, error) {
	return first(queryOutbox(q, "SELECT "+deliveryColumns+" FROM outbox WHERE "+isOpen+
		" AND account = $1 AND chat = $2 AND thread = $3 ORDER BY id LIMIT 1",
		to.Account, to.Chat, to.Thread))
}

// NextFirst returns the oldest delivery to the conversation that comes after another one, by chat
// and thread, among those of its account for which something is waiting or sending; or nil.
func (out *Outbox) NextFirst(q store.Queryer, after Address) (*Delivery, error) {
	return first(queryOutbox(q, "SELECT "+deliveryColumns+" FROM outbox WHERE "+isOpen+
		" AND account = $1 AND (chat, thread) > ($2, $3) ORDER BY chat, thread, id LIMIT 1",
		after.Account, after.Chat, after.Thread))
}

func first(list []Delivery, err error) (*Delivery, error) {
	if len(list) == 0 {
		return nil, err
	}
	return &list[0], err
}

// LastSent returns the platform's ids of what was last sent to the conversation of d before d.
func (out *Outbox) LastSent(q store.Queryer, d *Delivery) (ids []string, err error) {
	list, err := queryOutbox(q, "SELECT "+deliveryColumns+" FROM outbox WHERE state = 'sent' "+
		"AND account = $1 AND chat = $2 AND thread = $3 AND id < $4 ORDER BY id DESC LIMIT 1",
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
	if err != nil {
		return false, fmt.Errorf("bus: read outbox: %w", err)
	}
	return open, nil
}

// CrashedTwice returns how many deliveries are on their way that were so at the end of two
// processes, of which the last was that before this one.
func (out *Outbox) CrashedTwice(q store.Queryer) (n int, err error) {
	err = q.QueryRow("SELECT count(*) FROM outbox WHERE " + isOpen +
		" AND state = 'sending' AND crashes > 0").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("bus: read outbox: %w", err)
	}
	return n, nil
}

// Changes returns a number that is another one after [Outbox.Retry] and [Outbox.Drop], whichever
// process has called them.
func (out *Outbox) Changes(q store.Queryer) (n int64, err error) {
	err = q.QueryRow("SELECT COALESCE(sum(n), 0) FROM changes WHERE what = 'outbox'").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("bus: read changes: %w", err)
	}
	return n, nil
}

// changed counts a change of n deliveries by a person.
func changed(tx *store.Tx, n int64) error {
	if n == 0 {
		return nil
	}
	_, err := tx.Exec("INSERT INTO changes (what, n) VALUES ('outbox', 1) " +
		"ON CONFLICT (what) DO UPDATE SET n = changes.n + 1")
	return err
}

// List returns up to limit deliveries in a state, the newest first.
func (out *Outbox) List(q store.Queryer, state DeliveryState, limit int) ([]Delivery, error) {
	return queryOutbox(q, "SELECT "+deliveryColumns+" FROM outbox "+
		"WHERE state = $1 ORDER BY id DESC LIMIT $2", string(state), limit)
}

// FindDelivery returns the delivery with an id, or nil if there is none.
func FindDelivery(q store.Queryer, id int64) (*Delivery, error) {
	list, err := queryOutbox(q, "SELECT "+deliveryColumns+" FROM outbox WHERE id = $1", id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

func queryOutbox(q store.Queryer, query string, args ...any) ([]Delivery, error) {
	return store.Collect(q, "bus: read outbox", func(scan store.Scan, d *Delivery) error {
		if err := d.scan(scan); err != nil {
			return &store.RowError{Table: "outbox", ID: d.ID, Err: err}
		}
		return nil
	}, query, args...)
}

// scan reads a row of deliveryColumns. If it fails d has its ID all the same, if there is one.
func (d *Delivery) scan(scan store.Scan) error {
	var body, parts, ids []byte
	var to Address
	var tried, created int64
	err := scan(&d.ID, &to.Account, &to.Chat, &to.Thread, &d.State, &body, &parts, &ids,
		&d.Attempts, &d.Uncertain, &d.Crashes, &tried, &d.Error, &d.key, &created)
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
	d.Message.To = to // by which the row is found
	d.Tried, d.Created = time.Duration(tried)*time.Millisecond, time.UnixMilli(created)
	return nil
}

// SetAside gives a row that can't be read the state bad, with the reason, so that nobody reads it
// again.
func (out *Outbox) SetAside(tx *store.Tx, row *store.RowError) error {
	_, err := tx.Exec("UPDATE outbox SET state = 'bad', error = $2 WHERE id = $1", row.ID,
		row.Err.Error())
	if err != nil {
		return fmt.Errorf("bus: set aside message %d in outbox: %w", row.ID, err)
	}
	return nil
}

// Save writes how far d has come: everything but its message. It reports false, and
// writes nothing, if a person has dropped d meanwhile.
func (out *Outbox) Save(tx *store.Tx, d *Delivery, now time.Time) (bool, error) {
	if d.State == Sending && len(d.Parts) > 1 && len(d.IDs) == 0 {
		tx.Hard() // how it is split must not change once a part is sent
	}
	n, err := tx.Exec(`UPDATE outbox SET state = $1, parts = $2, ids = $3, attempts = $4,
			uncertain = $5, crashes = $6, tried_ms = $7, error = $8, updated_ms = $9
		WHERE id = $10 AND state IN ('waiting', 'sending')`,
		string(d.State), list(d.Parts), list(d.IDs), d.Attempts, d.Uncertain, d.Crashes,
		d.Tried.Milliseconds(), d.Error, now.UnixMilli(), d.ID)
	if err != nil {
		return false, fmt.Errorf("bus: save message %d in outbox: %w", d.ID, err)
	}
	return n > 0, nil
}

// list returns the JSON of l, "" for an empty one.
func list(l []string) string {
	if len(l) == 0 {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings have a JSON form
	}
	return string(text)
}

// Retry puts dead deliveries back in the queue, all of them if id is 0, and returns how many.
// Parts that were sent are not sent again.
func (out *Outbox) Retry(tx *store.Tx, id int64, now time.Time) (int64, error) {
	// What was spent on it begins anew, or the next failure would end it at once.
	n, err := tx.Exec(`UPDATE outbox SET state = 'waiting', attempts = 0, crashes = 0, tried_ms = 0,
		created_ms = $2, updated_ms = $2 WHERE state = 'dead' AND ($1 = 0 OR id = $1)`,
		id, now.UnixMilli())
	if err == nil {
		err = changed(tx, n)
	}
	if err != nil {
		return 0, fmt.Errorf("bus: retry in outbox: %w", err)
	}
	return n, nil
}

// Drop gives up deliveries that are dead, or one that still waits if id names it.
// All dead ones are meant if id is 0. It returns how many.
func (out *Outbox) Drop(tx *store.Tx, id int64, now time.Time) (int64, error) {
	n, err := tx.Exec(`UPDATE outbox SET state = 'dropped', updated_ms = $2
		WHERE ($1 = 0 AND state = 'dead')
			OR (id = $1 AND state IN ('dead', 'waiting', 'sending'))`, id, now.UnixMilli())
	if err == nil {
		err = changed(tx, n)
	}
	if err != nil {
		return 0, fmt.Errorf("bus: drop from outbox: %w", err)
	}
	return n, nil
}

// Newest returns the number of the newest delivery, 0 if there never was one.
func (out *Outbox) Newest(q store.Queryer) (id int64, err error) {
	if err := q.QueryRow("SELECT COALESCE(max(id), 0) FROM outbox").Scan(&id); err != nil {
		return 0, fmt.Errorf("bus: read outbox: %w", err)
	}
	return id, nil
}

// DropAll gives up what is still to be sent to a chat, all its threads together, up to a delivery:
// [Outbox.Erase] follows.
func (out *Outbox) DropAll(tx *store.Tx, a Address, upTo int64) error {
	_, err := tx.Exec(`UPDATE outbox SET state = 'dropped' WHERE account = $1 AND chat = $2
		AND id <= $3 AND state IN ('waiting', 'sending')`, a.Account, a.Chat, upTo)
	if err != nil {
		return fmt.Errorf("bus: drop what is for %s: %w", a, err)
	}
	return nil
}

// Owes reports whether something is still to be sent to a chat, all its threads together, up to a
// delivery.
func (out *Outbox) Owes(q store.Queryer, a Address, upTo int64) (bool, error) {
	var open int
	err := q.QueryRow(`SELECT count(*) FROM outbox WHERE account = $1 AND chat = $2 AND id <= $3
		AND state IN ('waiting', 'sending')`, a.Account, a.Chat, upTo).Scan(&open)
	if err != nil {
		return false, fmt.Errorf("bus: read outbox of %s: %w", a, err)
	}
	return open > 0, nil
}

// Erase deletes what was for a chat, all its threads together, up to a delivery. It looks at some
// rows after an id only, and returns the id after which to go on, upTo at the end.
func (out *Outbox) Erase(tx *store.Tx, a Address, after, upTo int64) (next int64, err error) {
	next, err = store.EraseStep(tx, "outbox", after, upTo, "account = $3 AND chat = $4",
		a.Account, a.Chat)
	if err != nil {
		return 0, fmt.Errorf("bus: erase %s: %w", a, err)
	}
	return next, nil
}
