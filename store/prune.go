package store

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// A Pruning says which rows of a table are over. Its texts stand in the statements.
type Pruning struct {
	Table string // with ids that the database counts up
	Time  string // the column with the time from which a row's age counts, Unix milliseconds
	Over  string // the condition of rows that may go
	Below int64  // rows with this id or a larger one stay; 0: none of them

	// Changing says that Time changes after a row was made, so that old rows may stand behind any
	// number of young ones.
	Changing bool
}

// PruneBatch is how many rows [Pruning.Step] looks at.
const PruneBatch = 500

// Step deletes what is over and was so before a time from the next [PruneBatch] rows after an id.
// The newest row stays: its id says how far the table has come. It returns how many rows
// it has deleted, and the id after which to go on, 0 at the end. The end is also where none of the
// rows is old enough, since a table grows by age, unless its times change.
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

// EraseStep deletes, of the next [PruneBatch] rows of a table after an id, those up to another id
// for which a condition holds. Its parameters begin with $3. It returns the id after which to go
// on, upTo at the end.
func EraseStep(
	tx *Tx, table string, after, upTo int64, condition string, args ...any,
) (next int64, err error) {
	err = tx.QueryRow("SELECT COALESCE(max(id), $2) FROM (SELECT id FROM "+table+
		" WHERE id > $1 AND id <= $2 ORDER BY id LIMIT 500) AS page", after, upTo).Scan(&next)
	if err == nil {
		_, err = tx.Exec("DELETE FROM "+table+" WHERE id > $1 AND id <= $2 AND "+condition,
			append([]any{after, next}, args...)...)
	}
	if err != nil {
		return 0, fmt.Errorf("store: erase from %s: %w", table, err)
	}
	return next, nil
}
