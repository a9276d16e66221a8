package schedule

import (
	"context"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/store"
)

// repair retries open runs whose message is neither in the inbox nor claimed by a turn. Each turn
// ends its run in the transaction that ends the turn, so such runs exist only after a manual change
// of the database. Without repair, such a run would block its job forever.
func (s *Scheduler) repair(ctx context.Context, now time.Time) error {
	read := func(scan store.Scan, r *Run) error { return scan(&r.ID, &r.Job, &r.Attempts) }
	open, err := store.Collect(s.db.Read(ctx), "schedule: read open runs", read,
		`SELECT id, job, attempts FROM runs
			WHERE state IN ('waiting', 'running') AND try_ms = 0 AND attempts > 0`)
	if err != nil {
		return err
	}
	for _, r := range open {
		lost := false
		err := s.db.Tx(ctx, func(tx *store.Tx) error {
			open, err := bus.IsMessageOpen(tx, attemptID(&r))
			if lost = !open; err != nil || open {
				return err
			}
			_, err = tx.Exec(`UPDATE runs SET state = 'waiting', try_ms = $3
				WHERE id = $1 AND attempts = $2 AND state IN ('waiting', 'running') AND try_ms = 0`,
				r.ID, r.Attempts, toMillis(now))
			return err
		})
		if err != nil {
			return fmt.Errorf("schedule: repair run %d: %w", r.ID, err)
		}
		if lost {
			s.opts.Logger.WarnContext(ctx, "run of a job tried again, as nobody works on it",
				"job", r.Job, "run", r.ID, "attempt", r.Attempts)
		}
	}
	return nil
}
