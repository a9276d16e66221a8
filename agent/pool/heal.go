package pool

import (
	"context"
	"log/slog"

	"gateway/session"
	"gateway/store"
)

// HealTurns resumes the running turns that no session works on: neither one of sessions, which Held
// returned, nor one that started since.
func (pl *Pool) HealTurns(
	ctx, work context.Context, sessions map[session.Key]bool,
) error {
	turns, err := pl.runningTurns(work)
	if err != nil {
		return survive(ctx, pl.env.Logger, "turns not looked after", err)
	}
	for _, t := range turns {
		if sessions[t.Session] || t.Epoch != pl.Lease.Epoch {
			continue
		}
		err := pl.tx(ctx, func(tx *store.Tx) error {
			return pl.sessions.TakeOver(tx, &t, pl.Lease, pl.env.Now())
		})
		if err != nil { // it has ended meanwhile
			if err := survive(ctx, pl.env.Logger, "turn not taken up again", err); err != nil {
				return err
			}
			continue
		}
		t.Attempts++
		pl.mu.Lock()
		_, works := pl.workers[t.Session]
		_, waits := pl.suspended[t.Session]
		if !works && !waits {
			pl.env.Logger.WarnContext(ctx, "turn taken up again: nobody had it",
				"session", t.Session, "turn", t.ID)
			pl.start(work, t.Session, &worker{resume: &t, alone: true})
		}
		pl.mu.Unlock()
	}
	return nil
}

// survive logs an error and returns nil. It returns an error that says that the store is lost.
func survive(ctx context.Context, log *slog.Logger, what string, err error) error {
	if err == nil || store.IsLost(err) {
		return err
	}
	log.ErrorContext(ctx, what, "err", err)
	return nil
}
