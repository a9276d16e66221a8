package bus

import (
	"database/sql"
	"errors"
	"fmt"
	"sort"
	"time"

	"gateway/store"
)

// A Backlog describes the messages that wait in the inbox.
type Backlog struct {
	Messages int
	Oldest   time.Time // when the oldest one was accepted; zero if none waits
}

// ReadBacklog returns the number and the age of the waiting messages.
func ReadBacklog(q store.Queryer) (b Backlog, err error) {
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

// WaitingSince returns up to [ReadLimit] messages that have been waiting since at or longer, in
// order of arrival.
func WaitingSince(q store.Queryer, at time.Time) ([]Received, error) {
	return readInbox(q, isWaiting+" AND received_ms <= $1 ORDER BY id LIMIT 256", at.UnixMilli())
}

// DeadByAccount returns, by account, the number of dead letters: deliveries that were given up
// until a person retries or drops them.
func DeadByAccount(q store.Queryer) (map[string]int, error) {
	return byAccount(q, "state = 'dead'")
}

// BadRows returns the number of rows that can't be read and were set aside.
func BadRows(q store.Queryer) (n int, err error) {
	err = q.QueryRow("SELECT count(*) FROM outbox WHERE state = 'bad'").Scan(&n)
	return n, store.Wrap(err, "bus: read outbox")
}

// DeadLetters returns the number of deliveries that were given up until a person retries or drops
// them.
func DeadLetters(q store.Queryer) (n int, err error) {
	err = q.QueryRow("SELECT count(*) FROM outbox WHERE state = 'dead'").Scan(&n)
	return n, store.Wrap(err, "bus: read outbox")
}

// LastAccepted returns the time at which the newest message was accepted, of those accepted before
// the given time, or the zero time if the inbox has none. It searches by halves, because times
// ascend with the ids. If the clock was once set back, it may return the time of an older message.
func LastAccepted(q store.Queryer, before time.Time) (time.Time, error) {
	newest, err := NewInbox().Newest(q)
	late := sort.Search(int(newest)+1, func(id int) bool {
		if err != nil {
			return true
		}
		var at time.Time
		at, err = acceptedAt(q, int64(id))
		return !at.Before(before) // false if no message has this id or a lower one: at is zero
	})
	if err != nil {
		return time.Time{}, err
	}
	return acceptedAt(q, int64(late)-1)
}

// acceptedAt returns the time at which the newest message was accepted, of those with an id up to
// the given one, or the zero time if there is none.
func acceptedAt(q store.Queryer, id int64) (time.Time, error) {
	var ms int64
	err := q.QueryRow("SELECT received_ms FROM inbox WHERE id <= $1 ORDER BY id DESC LIMIT 1", id).
		Scan(&ms)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("bus: read inbox: %w", err)
	}
	return time.UnixMilli(ms), nil
}
