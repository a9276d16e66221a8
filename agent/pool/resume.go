package pool

import (
	"context"

	"gateway/session"
	"gateway/store"
)

// ResumeTurns resumes running turns that have no session in memory. sessions is the result of an
// earlier call of InMemory. ResumeTurns also skips sessions that have started since that call.
func (pl *Pool) ResumeTurns(ctx, work context.Context, sessions map[session.Key]bool) error {
	turns, err := session.RepairRunning(work, pl.env.DB, pl.env.Logger)
	if err != nil {
		return store.LogUnlessLost(ctx, pl.env.Logger, "running turns could not be read", err)
	}
	for _, t := range turns {
		if sessions[t.Session] || t.Epoch != pl.Lease.Epoch {
			continue
		}
		err := pl.tx(ctx, func(tx *store.Tx) error {
			return session.TakeOver(tx, &t, pl.Lease, pl.env.Now())
		})
		if err != nil { // the turn has ended in the meantime
			if err := store.LogUnlessLost(ctx, pl.env.Logger, "turn could not be resumed", err); err != nil {
				return err
			}
			continue
		}
		t.Attempts++
		pl.mu.Lock()
		_, works := pl.workers[t.Session]
		_, waits := pl.suspended[t.Session]
		if !works && !waits {
			pl.env.Logger.WarnContext(ctx, "turn resumed: no session was working on it",
				"session", t.Session, "turn", t.ID)
			pl.start(work, t.Session, &worker{resume: &t, standalone: true})
		}
		pl.mu.Unlock()
	}
	return nil
}
