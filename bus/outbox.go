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
// by the owner. Its methods may be called concurrently.
type Outbox struct{ wake signal }

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
	Error     string   // of the last failed try
	Created   time.Time

	key string // part of its parts' keys
}

// Key returns the idempotency key of the part with the given index, at most 25 bytes.
func (d *Delivery) Key(part int) string { return d.key + "-" + strconv.Itoa(part) }

// NewKey returns an idempotency key, of 16 bytes. Keys are random, and kept until they are of no
// use: what is made of numbers or of words comes again, in another database, in one that was
// restored, or with the same answer to the same question.
func NewKey() string { return strings.ToLower(rand.Text()[:16]) }

// Put adds m. After the commit, [Outbox.Wake] must be called.
func (out *Outbox) Put(tx *store.Tx, m OutboundMessage, now time.Time) error {
	_, err := out.Add(tx, m, now)
	return err
}

// Add is Put for those who want to know the delivery's ID.
func (*Outbox) Add(tx *store.Tx, m OutboundMessage, now time.Time) (id int64, err error) {
	body, err := json.Marshal(m)
	if err == nil {
		err = tx.QueryRow(`INSERT INTO outbox (account, chat, state, body, key, created_ms,
			updated_ms) VALUES ($1, $2, 'waiting', $3, $4, $5, $5) RETURNING id`,
			m.To.Account, m.To.Chat, string(body), NewKey(), now.UnixMilli()).Scan(&id)
	}
	if err != nil {
		return 0, fmt.Errorf("bus: put %s in outbox: %w", m.To, err)
	}
	return id, nil
}

// OpenByAccount returns how many deliveries are waiting or sending, by account.
func (*Outbox) OpenByAccount(q store.Queryer) (map[string]int, error) {
	rows, err := q.Query("SELECT account, count(*) FROM outbox " +
		"WHERE state IN ('waiting', 'sending') GROUP BY account")
	if err != nil {
		return nil, fmt.Errorf("bus: read outbox: %w", err)
	}
	defer rows.Close()
	open := make(map[string]int)
	for rows.Next() {
		var account string
		var n int
		if err := rows.Scan(&account, &n); err != nil {
			return nil, fmt.Errorf("bus: read outbox: %w", err)
		}
		open[account] = n
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("bus: read outbox: %w", err)
	}
	return open, nil
}

// Wake tells the reader of [Outbox.C] that there may be new messages.
func (out *Outbox) Wake() { out.wake.ring() }

// C receives after Wake. It has one reader and is never closed.
func (out *Outbox) C() <-chan struct{} { return out.wake }

const deliveryColumns = "id, state, body, parts, ids, attempts, uncertain, error, key, " +
	"created_ms"

// Open returns up to [ReadLimit] deliveries that are waiting or sending and whose id
// is above after, in their order.
func (out *Outbox) Open(q store.Queryer, after int64) ([]Delivery, error) {
	return out.query(q, "SELECT "+deliveryColumns+" FROM outbox "+
		"WHERE state IN ('waiting', 'sending') AND id > $1 ORDER BY id LIMIT 256", after)
}

// OpenIDs returns the ids of all deliveries that are waiting or sending, in their order.
func (out *Outbox) OpenIDs(q store.Queryer) ([]int64, error) {
	rows, err := q.Query("SELECT id FROM outbox WHERE state IN ('waiting', 'sending') ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("bus: read outbox: %w", err)
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("bus: read outbox: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("bus: read outbox: %w", err)
	}
	return ids, nil
}

// List returns up to limit deliveries in a state, the newest first.
func (out *Outbox) List(q store.Queryer, state DeliveryState, limit int) ([]Delivery, error) {
	return out.query(q, "SELECT "+deliveryColumns+" FROM outbox "+
		"WHERE state = $1 ORDER BY id DESC LIMIT $2", string(state), limit)
}

func (out *Outbox) query(q store.Queryer, query string, args ...any) ([]Delivery, error) {
	rows, err := q.Query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("bus: read outbox: %w", err)
	}
	defer rows.Close()
	var list []Delivery
	for rows.Next() {
		var d Delivery
		var body, parts, ids []byte
		var created int64
		err := rows.Scan(&d.ID, &d.State, &body, &parts, &ids,
			&d.Attempts, &d.Uncertain, &d.Error, &d.key, &created)
		if err != nil {
			return nil, fmt.Errorf("bus: read outbox: %w", err)
		}
		for _, f := range []struct {
			text []byte
			to   any
		}{{body, &d.Message}, {parts, &d.Parts}, {ids, &d.IDs}} {
			if len(f.text) == 0 {
				continue
			}
			if err := json.Unmarshal(f.text, f.to); err != nil {
				return nil, fmt.Errorf("bus: read outbox: message %d: %w", d.ID, err)
			}
		}
		d.Created = time.UnixMilli(created)
		list = append(list, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("bus: read outbox: %w", err)
	}
	return list, nil
}

// Save writes how far d has come: everything but its message. It reports false, and
// writes nothing, if a person has dropped d meanwhile.
func (out *Outbox) Save(tx *store.Tx, d *Delivery, now time.Time) (bool, error) {
	n, err := tx.Exec(`UPDATE outbox SET state = $1, parts = $2, ids = $3, attempts = $4,
			uncertain = $5, error = $6, updated_ms = $7
		WHERE id = $8 AND state IN ('waiting', 'sending')`,
		string(d.State), list(d.Parts), list(d.IDs), d.Attempts,
		d.Uncertain, d.Error, now.UnixMilli(), d.ID)
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
	// The age begins anew, or the next failure would end it at once.
	n, err := tx.Exec(`UPDATE outbox SET state = 'waiting', attempts = 0, created_ms = $2,
		updated_ms = $2 WHERE state = 'dead' AND ($1 = 0 OR id = $1)`, id, now.UnixMilli())
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
	if err != nil {
		return 0, fmt.Errorf("bus: drop from outbox: %w", err)
	}
	return n, nil
}

// A Preview is what is noted of the messages that show an answer while it grows.
type Preview struct {
	IDs []string // platform's
	Key string   // of one more message that is on its way, or ""
}

// SavePreview notes what shows a stream.
func (out *Outbox) SavePreview(tx *store.Tx, stream string, p Preview) error {
	_, err := tx.Exec("INSERT INTO previews (stream, ids, key) VALUES ($1, $2, $3) "+
		"ON CONFLICT (stream) DO UPDATE SET ids = excluded.ids, key = excluded.key",
		stream, list(p.IDs), p.Key)
	if err != nil {
		return fmt.Errorf("bus: save preview %s: %w", stream, err)
	}
	return nil
}

// ForgetPreview removes the note of a stream that has ended.
func (out *Outbox) ForgetPreview(tx *store.Tx, stream string) error {
	if _, err := tx.Exec("DELETE FROM previews WHERE stream = $1", stream); err != nil {
		return fmt.Errorf("bus: forget preview %s: %w", stream, err)
	}
	return nil
}

// Previews returns what is noted, by stream.
func (out *Outbox) Previews(q store.Queryer) (map[string]Preview, error) {
	rows, err := q.Query("SELECT stream, ids, key FROM previews")
	if err != nil {
		return nil, fmt.Errorf("bus: read previews: %w", err)
	}
	defer rows.Close()
	previews := make(map[string]Preview)
	for rows.Next() {
		var stream string
		var text []byte
		var p Preview
		if err := rows.Scan(&stream, &text, &p.Key); err != nil {
			return nil, fmt.Errorf("bus: read previews: %w", err)
		}
		if len(text) > 0 { // else there are none
			if err := json.Unmarshal(text, &p.IDs); err != nil {
				return nil, fmt.Errorf("bus: read preview %s: %w", stream, err)
			}
		}
		previews[stream] = p
	}
	return previews, rows.Err()
}

// Newest returns the number of the newest delivery, 0 if there never was one.
func (out *Outbox) Newest(q store.Queryer) (id int64, err error) {
	if err := q.QueryRow("SELECT COALESCE(max(id), 0) FROM outbox").Scan(&id); err != nil {
		return 0, fmt.Errorf("bus: read outbox: %w", err)
	}
	return id, nil
}

// Erase deletes what was sent to a chat, all its threads together, up to a delivery, and what will
// not be sent. It reports false, and deletes nothing, while some of it is still to be sent.
func (out *Outbox) Erase(tx *store.Tx, a Address, upTo int64) (bool, error) {
	var open int
	err := tx.QueryRow(`SELECT count(*) FROM outbox WHERE account = $1 AND chat = $2 AND id <= $3
		AND state IN ('waiting', 'sending')`, a.Account, a.Chat, upTo).Scan(&open)
	if err == nil && open == 0 {
		_, err = tx.Exec("DELETE FROM outbox WHERE account = $1 AND chat = $2 AND id <= $3",
			a.Account, a.Chat, upTo)
	}
	if err != nil {
		return false, fmt.Errorf("bus: erase %s: %w", a, err)
	}
	return open == 0, nil
}
