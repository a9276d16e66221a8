package turn

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A clock ends a turn that takes too long. The clock stops while the turn waits for a slot, because
// other turns cause that wait.
type clock struct {
	end func(error) // ends the turn's context

	mu    sync.Mutex
	left  time.Duration
	since time.Time   // when it was last started
	timer *time.Timer // nil while it is stopped
}

// start starts the clock.
func (c *clock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, func() { c.end(errTurnTimeout) })
}

// stop stops the clock.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
	c.timer = nil
}

// SessionsPerSlot is the maximum number of working sessions per slot for model calls.
const SessionsPerSlot = 4

// LongestWaits is the longest wait for a slot, as a multiple of the longest turn. Since
// SessionsPerSlot limits the number of waiting sessions, only hanging models cause such a wait.
const LongestWaits = 2 * SessionsPerSlot

// errNoSlot reports that a turn waited too long for a slot.
var errNoSlot = errors.New("no model call could be made for too long")

// takeSlot waits for a slot.
func (t *modelCaller) takeSlot(ctx context.Context) error {
	select { // most turns find a free slot
	case t.env.Calls.Slots <- struct{}{}:
		return t.slotTaken(ctx)
	default:
	}
	t.clock.stop()
	defer t.clock.start()
	patience := time.NewTimer(LongestWaits * t.settings.Timeout)
	defer patience.Stop()
	select {
	case t.env.Calls.Slots <- struct{}{}:
		return t.slotTaken(ctx)
	case <-patience.C:
		return errNoSlot
	case <-ctx.Done():
		return ctx.Err()
	case <-t.env.Draining:
		return errDraining
	}
}

// slotTaken gives the slot back if the turn can no longer use it.
func (t *modelCaller) slotTaken(ctx context.Context) (err error) {
	if err = ctx.Err(); err == nil && t.env.IsDraining() {
		err = errDraining
	}
	if err != nil {
		<-t.env.Calls.Slots
	}
	return err
}
