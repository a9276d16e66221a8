package policy

import (
	"errors"
	"time"

	"gateway/store"
)

// Migration creates the table of this package.
var Migration = store.Migration{Package: "halt", Steps: []string{`
CREATE TABLE halts (
	id       INTEGER PRIMARY KEY, -- always 1: there is a row or there is none
	by_whom  TEXT NOT NULL,
	since_ms BIGINT NOT NULL
);`}}

// ErrHalted reports that everything is halted.
var ErrHalted = errors.New("everything is halted")

// A Halt is the kill switch while it is set: no process calls a model or uses a tool. It is a row,
// so that it holds in every process and survives restarts.
type Halt struct {
	By    string // who set it: account/sender, or the command line
	Since time.Time
}

// SetHalt sets the kill switch. It returns false if the switch was set before.
func SetHalt(tx *store.Tx, by string, now time.Time) (bool, error) {
	n, err := tx.Exec("INSERT INTO halts (id, by_whom, since_ms) VALUES (1, $1, $2) "+
		"ON CONFLICT (id) DO NOTHING", by, now.UnixMilli())
	return n == 1, store.Wrap(err, "policy: set halt")
}

// ClearHalt clears the kill switch. It returns false if the switch was not set.
func ClearHalt(tx *store.Tx) (bool, error) {
	n, err := tx.Exec("DELETE FROM halts")
	return n > 0, store.Wrap(err, "policy: clear halt")
}

// IsHalted reports whether the kill switch is set.
func IsHalted(q store.Queryer) (bool, error) {
	h, err := GetHalt(q)
	return h != nil, err
}

// GetHalt returns the halt, or nil if there is none. It runs before each model call and tool call.
func GetHalt(q store.Queryer) (*Halt, error) {
	var h Halt
	var since int64
	err := q.QueryRow("SELECT by_whom, since_ms FROM halts").Scan(&h.By, &since)
	if err != nil {
		return nil, store.Wrap(store.Optional(err), "policy: read halt")
	}
	h.Since = time.UnixMilli(since)
	return &h, nil
}
