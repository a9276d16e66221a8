package budget

import (
	"time"

	"gateway/store"
)

// Prune deletes at most 500 rows of days that ended before a time, and returns their
// number. It deletes rows of turns after all such days.
func (l *Ledger) Prune(tx *store.Tx, before time.Time) (int, error) {
	day := before.In(l.opts.Load().Location).Format(time.DateOnly)
	n, err := tx.Exec(`DELETE FROM usage WHERE (day, kind, key) IN
		(SELECT day, kind, key FROM usage WHERE day < $1 ORDER BY day LIMIT 500)`, day)
	if err == nil && n == 0 {
		n, err = tx.Exec(`DELETE FROM usage_turns WHERE turn IN
			(SELECT turn FROM usage_turns WHERE day < $1 ORDER BY day LIMIT 500)`, day)
	}
	return int(n), store.Wrap(err, "budget: prune")
}
