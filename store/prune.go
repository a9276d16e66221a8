package store

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// A Pruning describes the rows of a table that may be deleted. Its strings become part of SQL
// statements.
type Pruning struct {
	Table string // a table whose ids the database assigns
	Time  string // column with the time that counts as a row's age, Unix milliseconds
	Over  string // condition of rows that may be deleted
	Below int64  // rows with this id or a larger one stay; 0: no limit

	// Changing says that Time can change after the row was inserted, so an old row may follow any
	// number of newer ones.
	Changing bool
}

// PruneBatch is the number of rows that [Pruning.Step] examines.
const PruneBatch = 500

// Step examines the next [PruneBatch] rows after an id and deletes those that meet the condition
// and are older than before. The newest row always stays, because its id determines the next one.
// Step returns the number of deleted rows and the id for the next call, or 0 at the end. Unless
// Changing is set, Step also ends at the first batch without an old row, because the rows after it
// are even newer.
func (p Pruning) Step(tx *Tx, before time.Time, after int64) (n int, next int64, err error) {
	var rows, old int
	var last int64
	err = tx.QueryRow("SELECT count(*), COALESCE(sum(CASE WHEN at < $2 THEN 1 ELSE 0 END), 0), "+
		"COALESCE(max(id), 0) FROM (SELECT id, "+p.Time+" AS at FROM "+p.Table+
		" WHERE id > $1 ORDER BY id LIMIT 500) AS page", after, before.UnixMilli()).
		Scan(&rows, &old, &last)
	if err != nil {
		return 0, 0, fmt.Errorf("store: prune %s: %w", p.Table, err)
	}
	if old == 0 && (!p.Changing || rows < PruneBatch) {
		return 0, 0, nil
	}
	deleted, err := tx.Exec("DELETE FROM "+p.Table+" WHERE id > $1 AND id <= $2 AND "+p.Time+
		" < $3 AND id < $4 AND id < (SELECT max(id) FROM "+p.Table+") AND "+p.Over,
		after, last, before.UnixMilli(), cmp.Or(p.Below, math.MaxInt64))
	if err != nil {
		return 0, 0, fmt.Errorf("store: prune %s: %w", p.Table, err)
	}
	if rows < PruneBatch {
		last = 0
	}
	return int(deleted), last, nil
}

// EraseStep examines the next [PruneBatch] rows of a table after an id, up to the id upTo, and
// deletes those that meet a condition. The parameters of the condition begin with $3. EraseStep
// returns the id for the next call, or upTo at the end.
func EraseStep(
	tx *Tx, table string, after, upTo int64, condition string, args ...any,
) (next int64, err error) {
	err = tx.QueryRow("SELECT COALESCE(max(id), $2) FROM (SELECT id FROM "+table+
		" WHERE id > $1 AND id <= $2 ORDER BY id LIMIT 500) AS page", after, upTo).Scan(&next)
	if err == nil {
		_, err = tx.Exec("DELETE FROM "+table+" WHERE id > $1 AND id <= $2 AND "+condition,
			append([]any{after, next}, args...)...)
	}
	return next, Wrap(err, "store: erase from %s", table)
}
