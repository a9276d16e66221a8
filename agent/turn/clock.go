package turn

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A clock ends a turn that takes too long. It stands still while the turn waits for a slot, since
// the turn can't help how many others write.
type clock struct {
	end func(error) // ends the turn's context

	mu    sync.Mutex
	left  time.Duration
	since time.Time   // when it went on
	timer *time.Timer // nil while it stands
}

// goOn lets the clock run.
func (c *clock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, func() { c.end(errTurnTimeout) })
}

// stand stops the clock.
func (c *clock) stand() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
	c.timer = nil
}

// SessionsPerSlot is how many sessions may work at a time for each slot of a model call.
const SessionsPerSlot = 4

// LongestWaits is the longest wait for a slot, in times of the longest turn. It is met only while
// models hang, since SessionsPerSlot bounds how many sessions wait.
const LongestWaits = 2 * SessionsPerSlot

// errNoSlot reports that a turn has waited for a slot for too long.
var errNoSlot = errors.New("no model call could be made for too long")

// takeSlot waits for a slot.
func (t *asker) takeSlot(ctx context.Context) error {
	select { // most find one
	case t.env.Calls.Slots <- struct{}{}:
		return t.slotTaken(ctx)
	default:
	}
	t.clock.stand()
	defer t.clock.goOn()
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

// slotTaken gives the slot back if it is of no use any more.
func (t *asker) slotTaken(ctx context.Context) (err error) {
	if err = ctx.Err(); err == nil && t.env.IsDraining() {
		err = errDraining
	}
	if err != nil {
		<-t.env.Calls.Slots
	}
	return err
}
