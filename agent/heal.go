package agent

import (
	"context"
	"log/slog"
	"time"

	"gateway/store"
)

// What is in memory of messages and turns is a copy. Now and then it is held against the tables:
// what is there to be done, and nobody has, is handed out again.

// healInterval is how soon that happens.
const healInterval = 10 * time.Second

// heal hands out what nobody has, though it waits or runs.
func (d *Dispatcher) heal(ctx, work context.Context) error {
	// First what is held: what is taken up after that is new, or was held by somebody.
	messages, sessions := d.Held()
	d.lanes.Hold(messages)
	for after := int64(0); after < d.last; {
		page, err := d.Waiting(work, after)
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
			d.opts.Logger.DebugContext(ctx, "message taken up again: no session had it", "seq", r.Seq)
			if err := d.handOut(ctx, work, r, d.Config().Waiting); err != nil {
				return err
			}
		}
	}
	if err := survive(ctx, d.opts.Logger, "messages not dropped", d.drop(ctx)); err != nil {
		return err
	}
	return d.HealTurns(ctx, work, sessions)
}

// survive logs an error that is not the store's loss; one that is, it returns.
func survive(ctx context.Context, log *slog.Logger, what string, err error) error {
	if err == nil || store.IsLost(err) {
		return err
	}
	log.ErrorContext(ctx, what, "err", err)
	return nil
}
