package channels

import (
	"context"
	"slices"
	"time"

	"gateway/bus"
)

// A chat is the worker of one conversation: it delivers what is queued in order, and
// between that shows the answer that is growing.
type chat struct {
	r    *Router
	a    *account
	to   bus.Address
	wake chan struct{}

	// Guarded by r.mu:
	queue   []*bus.Delivery
	dropped []*bus.Delivery // of the queue, by a person
	news    []bus.Progress  // not looked at yet: the newest of each stream

	// The worker's own:
	pass    pass
	retryAt time.Time     // the delivery under way failed and is not tried before
	current *bus.Delivery // under way
	parts   []part        // of it
	old     messages      // that showed its answer growing
	preview preview
}

func (c *chat) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// tell hands c the newest progress. r.mu is held.
func (c *chat) tell(p bus.Progress) {
	if last := len(c.news) - 1; last >= 0 && c.news[last].Stream == p.Stream {
		c.news[last] = p
	} else {
		c.news = append(c.news, p)
	}
	c.ring()
}

// run works until there is nothing left to deliver or to show. Once ctx has ended it delivers
// what can go without waiting; if something is left then, c stays the conversation's worker, so
// that nothing overtakes it.
func (c *chat) run(ctx, work context.Context) {
	for {
		d, ok := c.next(ctx.Err() != nil)
		if !ok {
			return
		}
		var wait time.Duration
		if d != nil {
			if wait = c.deliver(work, d); wait == 0 {
				c.done(d)
				continue
			}
			if ctx.Err() != nil {
				return
			}
		} else {
			wait = c.show(ctx, work)
			if ctx.Err() != nil {
				c.preview.void = false // one try must do
				continue
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next takes in what was handed out and returns the delivery to be made, or nil if there is only
// the preview to look after. If there is nothing to do at all, c is no longer the conversation's
// worker.
func (c *chat) next(stopping bool) (d *bus.Delivery, ok bool) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for len(c.news) > 0 && !c.preview.void {
		p := c.news[0]
		c.news = c.news[1:]
		c.take(&p)
	}
	c.queue = slices.DeleteFunc(c.queue, func(d *bus.Delivery) bool {
		return slices.Contains(c.dropped, d)
	})
	c.dropped = nil
	switch {
	case len(c.queue) > 0:
		return c.queue[0], true
	case c.preview.void, c.preview.open() && !stopping:
		return nil, true
	}
	c.keep()
	delete(c.r.chats, c.to)
	return nil, false
}

// done removes d, which is over, from the queue.
func (c *chat) done(d *bus.Delivery) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.queue = c.queue[1:]
	if c.r.open[d.ID].d == d {
		delete(c.r.open, d.ID)
	}
}
