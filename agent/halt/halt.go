// Package halt is the kill switch: while it is set, no process makes a model call or uses a tool.
//
// The main type is [Store]. The switch is a row, so that it holds in every process and survives
// restarts; it is asked for before each call.
//
// Tables: halts.
package halt

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gateway/store"
)

// Migration makes the table of this package.
var Migration = store.Migration{Package: "halt", Steps: []string{`
CREATE TABLE halts (
	id       INTEGER PRIMARY KEY, -- always 1: there is a row or there is none
	by_whom  TEXT NOT NULL,
	since_ms BIGINT NOT NULL
);`}}

// A Halt says that everything is halted.
type Halt struct {
	By    string // who has done it: account/sender, or the command line
	Since time.Time
}

// Store reads and writes the switch. It has no state of its own.
type Store struct{}

// Set halts everything, and reports false if it was halted before.
func (Store) Set(tx *store.Tx, by string, now time.Time) (bool, error) {
	n, err := tx.Exec("INSERT INTO halts (id, by_whom, since_ms) VALUES (1, $1, $2) "+
		"ON CONFLICT (id) DO NOTHING", by, now.UnixMilli())
	if err != nil {
		return false, fmt.Errorf("halt: set: %w", err)
	}
	return n == 1, nil
}

// Clear lets everything go on, and reports false if it was not halted.
func (Store) Clear(tx *store.Tx) (bool, error) {
	n, err := tx.Exec("DELETE FROM halts")
	if err != nil {
		return false, fmt.Errorf("halt: clear: %w", err)
	}
	return n > 0, nil
}

// Get returns the halt, or nil if there is none.
func (Store) Get(q store.Queryer) (*Halt, error) {
	var h Halt
	var since int64
	err := q.QueryRow("SELECT by_whom, since_ms FROM halts").Scan(&h.By, &since)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("halt: read: %w", err)
	}
	h.Since = time.UnixMilli(since)
	return &h, nil
}
