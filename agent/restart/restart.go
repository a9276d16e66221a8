// Package restart keeps who has asked the gateway to start again, until it has.
//
// The main type is [Store]. A wish is a row, so that the next process tells that it is there also
// if the one before it was killed on its way. There is one a chat at most.
//
// Tables: restarts.
package restart

import (
	"fmt"
	"time"

	"gateway/bus"
	"gateway/store"
)

// Migration makes the table of this package.
var Migration = store.Migration{Package: "restart", Steps: []string{`
CREATE TABLE restarts (
	account  TEXT NOT NULL,
	chat     TEXT NOT NULL,
	thread   TEXT NOT NULL,
	asked_ms BIGINT NOT NULL,
	PRIMARY KEY (account, chat, thread)
);`}}

// A Wish is that of somebody who waits to hear that the gateway is back.
type Wish struct {
	To    bus.Address
	Asked time.Time
}

// Store reads and writes wishes. It has no state of its own.
type Store struct{}

// Ask notes a wish. Of several in one chat the first one counts.
func (Store) Ask(tx *store.Tx, to bus.Address, now time.Time) error {
	_, err := tx.Exec(`INSERT INTO restarts (account, chat, thread, asked_ms)
		VALUES ($1, $2, $3, $4) ON CONFLICT (account, chat, thread) DO NOTHING`,
		to.Account, to.Chat, to.Thread, now.UnixMilli())
	if err != nil {
		return fmt.Errorf("restart: ask: %w", err)
	}
	return nil
}

// Take removes all wishes and returns them, the oldest first.
func (Store) Take(tx *store.Tx) ([]Wish, error) {
	list, err := wishes(tx)
	if err == nil && len(list) > 0 {
		_, err = tx.Exec("DELETE FROM restarts")
	}
	if err != nil {
		return nil, fmt.Errorf("restart: take: %w", err)
	}
	return list, nil
}

func wishes(q store.Queryer) (list []Wish, err error) {
	rows, err := q.Query("SELECT account, chat, thread, asked_ms FROM restarts ORDER BY asked_ms")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var w Wish
		var asked int64
		if err := rows.Scan(&w.To.Account, &w.To.Chat, &w.To.Thread, &asked); err != nil {
			return nil, err
		}
		w.Asked = time.UnixMilli(asked)
		list = append(list, w)
	}
	return list, rows.Err()
}
