package router

import (
	"context"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// A chat is the worker of one conversation: it delivers what is queued in order, and
// between that shows the answer that is growing.
type chat struct {
	r    *Router
	a    *account
	to   bus.Address
	wake chan struct{}

	// Guarded by r.mu:
	first   *bus.Delivery  // the oldest one; nil: none is known
	more    bool           // there may be others in the table
	check   bool           // first may have been dropped by a person
	loading bool           // the table is being looked at
	counted bool           // in a.loaded
	news    []bus.Progress // not looked at yet: the newest of each stream

	// The worker's own:
	pass     pass
	reserved bool          // a new message may be sent: the pass for it is used up
	retryAt  time.Time     // the delivery under way failed and is not tried before
	since    time.Time     // when it was tried last
	doubt    time.Time     // since when its next part may have been sent; zero if it was not
	waited   time.Duration // that it was to wait then
	current  *bus.Delivery // under way
	planned  bool          // parts are those of it
	marked   bool          // it is in the table as it is here, and sending
	parts    []part        // of it
	old      messages      // that showed its answer growing
	preview  preview
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

// hold gives c the delivery to be made. r.mu is held.
func (c *chat) hold(d *bus.Delivery) {
	c.first = d
	c.count()
	c.ring()
}

// expect has c look at the table. r.mu is held.
func (c *chat) expect() {
	c.more = true
	c.count()
	c.ring()
}

func (c *chat) count() {
	if !c.counted {
		c.counted = true
		c.a.loaded++
	}
}

// end makes c no longer the conversation's worker. r.mu is held.
func (c *chat) end() {
	c.keep()
	delete(c.r.chats, c.to)
	if !c.counted {
		return
	}
	c.a.loaded--
	if c.a.waits.any {
		select {
		case c.r.room <- struct{}{}:
		default:
		}
	}
}

// run works until there is nothing left to deliver or to show. Once ctx has ended it delivers
// what can go without waiting; if something is left then, c stays the conversation's worker, so
// that nothing overtakes it.
func (c *chat) run(ctx, work context.Context) {
	for {
		d, ok := c.next(work, ctx.Err() != nil)
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
			wait = min(wait, placeTime)
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
			if wait == placeTime && c.yield() {
				timer.Stop()
				return
			}
		}
		timer.Stop()
	}
}

// next takes in what was handed out and returns the delivery to be made, or nil if there is only
// the preview to look after. If there is nothing to do at all, c is no longer the conversation's
// worker.
func (c *chat) next(work context.Context, stopping bool) (d *bus.Delivery, ok bool) {
	for {
		c.r.mu.Lock()
		for len(c.news) > 0 && !c.preview.void {
			p := c.news[0]
			c.news = c.news[1:]
			c.take(&p)
		}
		d = c.first
		switch {
		case d != nil && c.check, d == nil && c.more:
			c.check, c.loading = false, true
			if d == nil {
				c.more = false
			}
			c.r.mu.Unlock()
			if !c.load(work, d) {
				return nil, false
			}
			continue
		case d != nil, c.preview.void, c.preview.open() && !stopping:
			c.r.mu.Unlock()
			return d, true
		}
		c.end()
		c.r.mu.Unlock()
		return nil, false
	}
}

// load looks at the table: whether d is still to be delivered, or, if it is nil, what is. It
// reports false when ctx has ended.
func (c *chat) load(ctx context.Context, d *bus.Delivery) bool {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		found, err := c.look(ctx, d)
		if err == nil {
			c.r.mu.Lock()
			c.loading = false
			if c.first = found; found != nil {
				c.r.over.add(found.Message.Stream)
			}
			c.more = c.more || found != nil || d != nil
			c.r.mu.Unlock()
			return true
		}
		if ctx.Err() == nil {
			c.r.log.ErrorContext(ctx, "outbox not read", "to", c.to.String(), "err", err)
		}
		if !channels.Sleep(ctx, wait) {
			return false
		}
	}
}

// look returns d if it is still to be delivered, or, if d is nil, the first delivery that is.
func (c *chat) look(ctx context.Context, d *bus.Delivery) (*bus.Delivery, error) {
	q := c.r.db.Read(ctx)
	if d != nil {
		open, err := c.r.outbox.IsOpen(q, d.ID)
		if err != nil || !open {
			return nil, err
		}
		return d, nil
	}
	for {
		found, err := c.r.outbox.First(q, c.to)
		aside, err := c.r.setAside(ctx, err)
		if err != nil || found != nil || aside == 0 {
			return found, err
		}
	}
}

// done removes d, which is over.
func (c *chat) done(d *bus.Delivery) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.a.open--
	if c.first == d {
		c.first = nil
	}
}

// yield gives c's place to a conversation that has none, if there is one: c has waited for long,
// and stands in line again. It reports whether c is no longer the conversation's worker.
func (c *chat) yield() bool {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if !c.a.waits.any || c.a.loaded <= maxLoaded-yieldAtOnce || c.first == nil || c.marked ||
		len(c.news) > 0 || c.preview.open() || c.a.broken() {
		return false
	}
	if s := c.first.Message.Stream; s != "" && c.current == c.first {
		c.r.kept[s] = c.old
	}
	c.a.waits.add()
	c.end()
	return true
}
