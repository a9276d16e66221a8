package agent

import (
	"context"
	"log/slog"
	"time"

	"gateway/store"
)

// The messages and turns in memory are copies of rows. At intervals the dispatcher compares them
// with the tables, and hands out again each pending message or turn that is not in memory.

// healInterval is the time between two comparisons.
const healInterval = 10 * time.Second

// heal hands out pending messages and turns that are not in memory.
func (d *Dispatcher) heal(ctx, work context.Context) error {
	// Collect the messages and sessions in memory first: work that arrives later is in memory, too,
	// or handed out.
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
			d.opts.Logger.DebugContext(ctx, "message handed out again: no session had it", "seq", r.Seq)
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

// survive logs an error and returns nil, unless the store is lost: then it returns the error.
func survive(ctx context.Context, log *slog.Logger, what string, err error) error {
	if err == nil || store.IsLost(err) {
		return err
	}
	log.ErrorContext(ctx, what, "err", err)
	return nil
}
