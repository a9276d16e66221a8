package router

import (
	"context"
	"slices"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// A conversation is the worker of one conversation. It delivers the queued messages in order. While
// none is queued, it shows the growing answer.
type conversation struct {
	r    *Router
	a    *account
	to   bus.Address
	wake bus.Signal // makes the worker check the fields

	// Guarded by r.mu:
	first   *bus.Delivery  // the oldest delivery; nil: unknown
	more    bool           // the table may have further ones
	check   bool           // a person may have dropped first
	loading bool           // the table is being read
	counted bool           // c is counted in a.loaded
	updates []bus.Progress // newest progress of each stream, not applied yet

	// Used by the worker only:
	reservation reservation // for the next new message
	sender      sender
	display     display
}

// update gives c the newest progress of an answer. r.mu is held.
func (c *conversation) update(p bus.Progress) {
	same := func(other bus.Progress) bool { return other.Stream == p.Stream }
	if i := slices.IndexFunc(c.updates, same); i >= 0 {
		c.updates[i] = p
	} else {
		c.updates = append(c.updates, p)
	}
	c.wake.Ring()
}

// assign gives c its next delivery. r.mu is held.
func (c *conversation) assign(d *bus.Delivery) {
	c.first = d
	c.count()
	c.wake.Ring()
}

// expectMore makes c read the table for further deliveries. r.mu is held.
func (c *conversation) expectMore() {
	c.more = true
	c.count()
	c.wake.Ring()
}

// isIdle reports whether nothing waits to be sent by c. r.mu is held.
func (c *conversation) isIdle() bool { return c.first == nil && !c.more && !c.loading }

// count adds c to the conversations for which something waits. r.mu is held.
func (c *conversation) count() {
	if !c.counted {
		c.counted = true
		c.a.loaded++
	}
}

// end removes c from the workers. r.mu is held.
func (c *conversation) end() {
	c.display.keepPreview()
	delete(c.r.conversations, c.to)
	if !c.counted {
		return
	}
	c.a.loaded--
	if c.a.backlog.pending {
		c.r.freed.Ring()
	}
}

// run works until nothing is left to deliver or to show. Once ctx is done it delivers only messages
// that need not wait. If messages are left, c stays registered as the conversation's worker, so
// that no later message overtakes them.
func (c *conversation) run(ctx, work context.Context) {
	for {
		d, ok := c.next(work, ctx.Err() != nil)
		if !ok {
			return
		}
		var wait time.Duration
		if d != nil {
			if wait = c.sender.deliver(work, d); wait == 0 {
				c.done(d)
				continue
			}
			if ctx.Err() != nil {
				return
			}
			wait = min(wait, workerTime)
		} else {
			wait = c.display.show(ctx, work)
			if ctx.Err() != nil {
				c.display.preview.stopped = false // the gateway is stopping: one attempt is enough
				continue
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
			if wait == workerTime && c.yield() {
				timer.Stop()
				return
			}
		}
		timer.Stop()
	}
}

// next applies the received updates and returns the next delivery, or nil if only the preview needs
// work. It returns false if nothing needs work; c is then no longer the conversation's worker.
func (c *conversation) next(work context.Context, stopping bool) (d *bus.Delivery, ok bool) {
	for {
		c.r.mu.Lock()
		// Not those that come meanwhile: they may come faster than they are applied.
		for n := len(c.updates); n > 0 && !c.display.preview.stopped; n-- {
			p := c.updates[0]
			c.updates = c.updates[1:]
			c.r.mu.Unlock()
			c.display.withhold(&p)
			c.r.mu.Lock()
			c.display.applyUpdate(&p)
		}
		d = c.first
		switch {
		case d != nil && c.check, d == nil && c.more:
			c.check, c.loading = false, true
			if d == nil {
				c.more = false
			}
			c.r.mu.Unlock()
			if !c.reload(work, d) {
				return nil, false
			}
			continue
		case d != nil, c.display.preview.stopped, c.display.preview.active() && !stopping:
			c.r.mu.Unlock()
			return d, true
		case len(c.updates) > 0 && !stopping:
			c.r.mu.Unlock()
			continue
		}
		c.end()
		c.r.mu.Unlock()
		return nil, false
	}
}

// reload reads the table: whether d must still be delivered or, if d is nil, which delivery is the
// first. It retries until that succeeds, and returns false when ctx is done.
func (c *conversation) reload(ctx context.Context, d *bus.Delivery) bool {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		found, err := c.find(ctx, d)
		if err == nil {
			c.r.mu.Lock()
			c.loading = false
			if c.first = found; found != nil {
				c.a.read = max(c.a.read, found.ID)
				c.r.previews.end(found.Message.Stream)
			}
			c.more = c.more || found != nil || d != nil
			c.r.mu.Unlock()
			return true
		}
		if ctx.Err() == nil {
			c.r.log.ErrorContext(ctx, "outbox could not be read", "to", c.to.String(), "err", err)
		}
		if !channels.Sleep(ctx, wait) {
			return false
		}
	}
}

// find returns d if it must still be delivered and has begun or is the first, or else the first
// delivery of the conversation. A person can have put an earlier one back.
func (c *conversation) find(ctx context.Context, d *bus.Delivery) (*bus.Delivery, error) {
	if d != nil {
		open, err := c.r.outbox.IsOpen(c.r.db.Read(ctx), d.ID)
		if err != nil || !open {
			return nil, err
		}
		if len(d.IDs) > 0 {
			return d, nil
		}
	}
	first, err := c.firstTo(ctx, c.to)
	if d != nil && first != nil && first.ID == d.ID {
		return d, err
	}
	return first, err
}

// firstTo returns the first delivery to an address, or nil. It sets rows aside that can't be read.
func (c *conversation) firstTo(ctx context.Context, to bus.Address) (*bus.Delivery, error) {
	for {
		found, err := c.r.outbox.First(c.r.db.Read(ctx), to)
		aside, err := c.r.setAside(ctx, err)
		if err != nil || found != nil || aside == 0 {
			return found, err
		}
	}
}

// done removes d, which was sent or given up.
func (c *conversation) done(d *bus.Delivery) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.a.pending--
	if c.first == d {
		c.first = nil
	}
	if other, moved := c.a.other(c.to); moved {
		if next, ok := c.r.conversations[other]; ok {
			next.wake.Ring() // it may wait behind d
		}
	}
}

// yield ends c, which has waited for long, if a conversation without a worker needs one. It reports
// whether it has ended c. It does not if the table may lack the progress of the delivery, because
// the next worker of the conversation reads the table.
func (c *conversation) yield() bool {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if !c.a.backlog.pending || c.a.loaded <= maxLoaded-yieldAtOnce || c.first == nil ||
		c.sender.sending || c.first.State != bus.Waiting || len(c.updates) > 0 ||
		c.display.preview.active() || c.a.isUnreachable() {
		return false
	}
	if s := c.first.Message.Stream; s != "" && c.sender.current == c.first {
		c.r.previews.kept[s] = c.sender.shown
	}
	c.a.backlog.add()
	c.end()
	return true
}
