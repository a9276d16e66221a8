package agent

import (
	"context"
	"time"

	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// What is in memory of messages and turns is a copy. Now and then it is held against the tables:
// what is there to be done, and nobody has, is handed out again.

// healInterval is how soon that happens.
const healInterval = 10 * time.Second

// heal hands out what nobody has, though it waits or runs.
func (d *Dispatcher) heal(ctx, work context.Context) error {
	// First what is held: what is taken up after that is new, or was held by somebody.
	messages, sessions := d.held()
	d.lanes.hold(messages)
	for after := int64(0); after < d.last; {
		page, err := d.waiting(work, after)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			if after = r.Seq; after > d.last || messages[r.Seq] {
				continue
			}
			d.opts.Logger.DebugContext(ctx, "message taken up again: nobody had it", "seq", r.Seq)
			if err := d.handOut(ctx, work, r, d.config().Waiting); err != nil {
				return err
			}
		}
	}
	if err := d.survive(ctx, "messages not dropped", d.dropOver(ctx)); err != nil {
		return err
	}
	return d.healTurns(ctx, work, sessions)
}

// healTurns resumes the turns that run in none of sessions, nor in one that has come since.
func (d *Dispatcher) healTurns(
	ctx, work context.Context, sessions map[session.Key]bool,
) error {
	turns, err := d.runningTurns(work)
	if err != nil {
		return d.survive(ctx, "turns not looked after", err)
	}
	for _, t := range turns {
		if sessions[t.Session] || t.Epoch != d.lease.Epoch {
			continue
		}
		err := d.tx(ctx, func(tx *store.Tx) error {
			return d.sessions.TakeOver(tx, &t, d.lease, d.opts.Now())
		})
		if err != nil { // it has ended meanwhile
			if err := d.survive(ctx, "turn not taken up again", err); err != nil {
				return err
			}
			continue
		}
		t.Attempts++
		d.mu.Lock()
		_, works := d.workers[t.Session]
		_, waits := d.suspended[t.Session]
		if !works && !waits {
			d.opts.Logger.WarnContext(ctx, "turn taken up again: nobody had it",
				"session", t.Session, "turn", t.ID)
			d.start(work, t.Session, &worker{resume: &t, alone: true})
		}
		d.mu.Unlock()
	}
	return nil
}

// waiting returns the next messages that wait after one. Those that can't be read are set aside.
func (pl *pool) waiting(work context.Context, after int64) ([]bus.Received, error) {
	list, err := pl.env.Inbox.Waiting(pl.env.DB.Read(work), after)
	_, err = pl.env.DB.Mend(work, pl.env.Logger, err, pl.env.Inbox.SetAside)
	return list, err
}

// runningTurns returns the turns that have not ended. One whose address can't be read gets that of
// its session.
func (pl *pool) runningTurns(work context.Context) ([]session.Turn, error) {
	turns, err := pl.sessions.RunningTurns(pl.env.DB.Read(work))
	n, err := pl.env.DB.Mend(work, pl.env.Logger, err, pl.sessions.Mend)
	if err != nil || n == 0 {
		return turns, err
	}
	return pl.sessions.RunningTurns(pl.env.DB.Read(work))
}

// survive logs an error that is not the store's loss; one that is, it returns.
func (pl *pool) survive(ctx context.Context, what string, err error) error {
	if err == nil || store.IsLost(err) {
		return err
	}
	pl.env.Logger.ErrorContext(ctx, what, "err", err)
	return nil
}
