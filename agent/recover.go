package agent

import (
	"context"
	"time"

	"gateway/store"
)

// The messages and turns in memory are copies of rows. At intervals the dispatcher compares them
// with the tables, and hands out again each pending message or turn that is not in memory.

// recoveryInterval is the time between two comparisons.
const recoveryInterval = 10 * time.Second

// recoverPending hands out pending messages and turns that are not in memory.
func (d *Dispatcher) recoverPending(ctx, work context.Context) error {
	// Collect the messages and sessions in memory first: work that arrives later is in memory, too,
	// or handed out.
	messages, sessions := d.pool.InMemory()
	d.lanes.Hold(messages)
	for after := int64(0); after < d.last; {
		page, err := d.pool.Waiting(work, after)
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
			if err := d.route(ctx, work, r, d.pool.Config().Waiting); err != nil {
				return err
			}
		}
	}
	if err := store.LogUnlessLost(ctx, d.opts.Logger, "messages not dropped",
		d.drop(ctx)); err != nil {
		return err
	}
	return d.pool.ResumeTurns(ctx, work, sessions)
}
