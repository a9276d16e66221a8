package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gateway/store"
)

// A due job is paused if its creator may no longer use the agent, or if nothing can be sent to its
// conversation. It continues without further action once that has changed. A pause that a person
// has requested stays.

// The stored reasons of such a pause.
const (
	WhyRefused  = "who has set it up may not use me any more"
	WhyLeft     = "I was told to leave the group"
	WhyUnserved = "its account is not configured or switched off" // it keeps the time that is due
)

// pauseRefused pauses a job that Admit refuses, unless somebody has paused it.
func pauseRefused(tx *store.Tx, id int64, why string) error {
	_, err := tx.Exec(`UPDATE jobs SET state = 'paused', why = $2, shut_out = 1
		WHERE id = $1 AND state IN ('active', 'ended')`, id, why)
	return err
}

// readmit ends the pauses of jobs whose creators may use the agent again. Runs that were
// due in the meantime are skipped, as with every other pause.
func (s *Scheduler) readmit(ctx context.Context, now time.Time) error {
	if !s.tried.IsZero() && now.Sub(s.tried) < poll {
		return nil
	}
	s.tried = now
	for after := int64(0); ; {
		list, err := jobs(s.db.Read(ctx), `j.shut_out = 1 AND j.id > $1 ORDER BY j.id LIMIT 256`, after)
		if err != nil {
			return err
		}
		for i := range list {
			after = list[i].ID
			s.survive(ctx, func() { err = s.endPause(ctx, &list[i], now) },
				"job stays paused: it panicked when it was to go on", "job", after)
			if err != nil {
				return fmt.Errorf("schedule: let job %d go on: %w", after, err)
			}
		}
		if len(list) < batch {
			return nil
		}
	}
}

// endPause ends the pause of j if its creator may use the agent again. A one-time job whose
// time has passed has ended. A job that had no account keeps its time, and so starts late.
func (s *Scheduler) endPause(ctx context.Context, j *Job, now time.Time) error {
	_, why, err := s.opts.Admit(s.db.Read(ctx), j)
	if err != nil || why != "" {
		return err
	}
	goesOn := false
	err = s.db.Tx(ctx, func(tx *store.Tx) error {
		n, err := tx.Exec(`UPDATE jobs SET state = 'ended', why = '', next_ms = 0, shut_out = 0
			WHERE id = $1 AND state = 'paused' AND shut_out = 1`, j.ID)
		if goesOn = n > 0; err != nil || !goesOn {
			return err // changed in the meantime
		}
		if j.PauseReason == WhyUnserved {
			_, err = tx.Exec("UPDATE jobs SET state = 'active', next_ms = $2 WHERE id = $1", j.ID,
				toMillis(j.Next))
			return err
		}
		err = s.Resume(tx, j.ID, now)
		if errors.Is(err, ErrNoNextRun) {
			goesOn, err = false, nil
		}
		return err
	})
	if err == nil && goesOn {
		s.opts.Logger.InfoContext(ctx, "job goes on, as its maker may use the gateway again",
			"job", j.ID)
	}
	return err
}
