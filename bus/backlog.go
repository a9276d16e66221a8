package bus

import (
	"database/sql"
	"fmt"
	"time"

	"gateway/store"
)

// A Backlog is what waits in the inbox.
type Backlog struct {
	Messages int
	Oldest   time.Time // when the oldest was accepted; zero if there is none
}

// Backlog returns what waits.
func (*Inbox) Backlog(q store.Queryer) (b Backlog, err error) {
	var oldest sql.NullInt64
	err = q.QueryRow("SELECT count(*), min(received_ms) FROM inbox WHERE state = 'waiting'").
		Scan(&b.Messages, &oldest)
	if err != nil {
		return Backlog{}, fmt.Errorf("bus: read inbox: %w", err)
	}
	if oldest.Valid {
		b.Oldest = time.UnixMilli(oldest.Int64)
	}
	return b, nil
}

// WaitingSince returns up to [ReadLimit] messages that have waited since a time or longer, in their
// order.
func (in *Inbox) WaitingSince(q store.Queryer, at time.Time) ([]Received, error) {
	return in.query(q, "SELECT id, body, received_ms FROM inbox "+
		"WHERE state = 'waiting' AND received_ms <= $1 ORDER BY id LIMIT 256", at.UnixMilli())
}

// DeadLetters returns how many messages were given up and wait for a person to retry or drop them.
func (*Outbox) DeadLetters(q store.Queryer) (n int, err error) {
	if err := q.QueryRow("SELECT count(*) FROM outbox WHERE state = 'dead'").Scan(&n); err != nil {
		return 0, fmt.Errorf("bus: read outbox: %w", err)
	}
	return n, nil
}
