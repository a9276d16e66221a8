package chore

import (
	"fmt"
	"time"

	"gateway/store"
)

// CountDue returns how many chores are due.
func (Store) CountDue(q store.Queryer, now time.Time) (n int, err error) {
	err = q.QueryRow("SELECT count(*) FROM chores WHERE due_ms <= $1", now.UnixMilli()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("chore: count: %w", err)
	}
	return n, nil
}
