package usage

import (
	"fmt"
	"time"

	"gateway/store"
)

// Prune deletes what was counted on days that were over before a time, at most 500 rows, and
// returns how many.
func (l *Ledger) Prune(tx *store.Tx, before time.Time) (int, error) {
	n, err := tx.Exec(`DELETE FROM usage WHERE (day, kind, key) IN
		(SELECT day, kind, key FROM usage WHERE day < $1 ORDER BY day LIMIT 500)`,
		before.In(l.opts.Load().Location).Format(time.DateOnly))
	if err != nil {
		return 0, fmt.Errorf("usage: prune: %w", err)
	}
	return int(n), nil
}
