package channels

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gateway/bus"
	"gateway/channels/markup"
	"gateway/store"
	"gateway/store/fault"
)

// A chat is the worker of one conversation: it delivers what is queued in order, and
// between that shows the answer that is growing.
type chat struct {
	r    *Router
	a    *account
	to   bus.Address
	wake chan struct{}

	// Guarded by r.mu:
	queue []*bus.Delivery
	news  *bus.Progress // not looked at yet

	// The worker's own:
	notBefore time.Time // the platform asked this chat to wait
	preview   preview
}

func (c *chat) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run works until there is nothing left to deliver or to show. Once ctx has ended it
// delivers what can go without waiting.
func (c *chat) run(ctx, work context.Context) {
	defer c.leave()
	for {
		d, ok := c.next()
		if !ok {
			return
		}
		var wait time.Duration
		if d != nil {
			wait = c.deliver(work, d)
			if wait == 0 {
				c.done(d)
				continue
			}
		} else {
			wait = c.show(work)
		}
		if ctx.Err() != nil {
			return
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

// leave makes room for another worker, unless c has left something that must go before.
func (c *chat) leave() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if len(c.queue) == 0 && c.r.chats[c.to] == c {
		delete(c.r.chats, c.to)
	}
}

// next takes in what was handed out and returns the delivery to be made. If there is nothing
// to do at all, c is no longer the conversation's worker.
func (c *chat) next() (d *bus.Delivery, ok bool) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.news != nil {
		c.preview.update(c.news, c.r.now(), c.r.previews)
		c.news = nil
	}
	if len(c.queue) > 0 {
		return c.queue[0], true
	}
	if c.preview.open() {
		return nil, true
	}
	delete(c.r.chats, c.to)
	return nil, false
}

// done removes d, which is over, from the queue.
func (c *chat) done(d *bus.Delivery) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.queue = c.queue[1:]
	delete(c.r.open, d.ID)
	if s := d.Message.Stream; s != "" {
		delete(c.r.previews, s)
		if c.preview.stream == s && c.preview.ended {
			c.preview = preview{}
			return
		}
		c.r.finished[s] = true
		if c.preview.stream == s {
			c.preview = preview{}
		}
	}
}

// How long a message is tried.
const (
	maxAge     = 24 * time.Hour
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// deliver makes the next try of d and of the parts after it, and returns how long to wait before
// it is to be called again: 0 when d is over.
func (c *chat) deliver(ctx context.Context, d *bus.Delivery) time.Duration {
	limits := c.a.limits(c.to)
	if len(d.Parts) == 0 && limits.Text > 0 && len(d.Message.Text) > limits.Text/4 {
		parts := markup.Split(d.Message.Text, limits.Text, limits.Measure)
		if len(parts) > 1 {
			d.Parts = parts
		}
	}
	for {
		if wait := c.notBefore.Sub(c.r.now()); wait > 0 {
			return wait
		}
		part, last := c.part(d)
		editing, id := c.editing(d)
		if !editing {
			if wait := c.a.reserve(c.to, limits, c.r.now()); wait > 0 {
				return wait
			}
		}
		d.State = bus.Sending
		if ok, wait := c.save(ctx, d); !ok {
			return wait
		}
		fault.Point("sending")
		var err error
		start := c.r.now()
		if editing {
			err = c.edit(ctx, part, id, len(d.IDs))
		} else {
			id, err = c.a.Channel.Send(ctx, part)
		}
		if err != nil {
			if over := c.failed(ctx, d, err, editing); !over {
				return max(c.notBefore.Sub(c.r.now()), time.Millisecond)
			}
			return 0
		}
		fault.Point("sent")
		d.IDs = append(d.IDs, id)
		d.Attempts, d.Error = 0, ""
		if last {
			d.State = bus.Sent
			_, wait := c.save(ctx, d)
			fault.Point("delivered")
			c.r.stats.Sent.Add(1)
			c.r.log.InfoContext(ctx, "message sent", "to", c.to.String(), "id", id,
				"took", c.r.now().Sub(start))
			return wait
		}
	}
}

// part returns what is to be sent next of d.
func (c *chat) part(d *bus.Delivery) (part bus.Part, last bool) {
	n := len(d.IDs)
	part = bus.Part{Key: d.Key(n), To: c.to, Text: d.Message.Text}
	if n == 0 {
		part.ReplyTo = d.Message.ReplyTo
	}
	if len(d.Parts) > 0 {
		part.Text = d.Parts[n]
	}
	return part, n+1 >= len(d.Parts)
}

// save writes how far d has come. ok is false if that can't be or need not be continued: when
// wait is 0, a person has dropped d; else the store failed.
func (c *chat) save(ctx context.Context, d *bus.Delivery) (ok bool, wait time.Duration) {
	err := c.r.db.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		ok, err = c.r.outbox.Save(tx, d, c.r.now())
		if err == nil && c.noted(d) && (d.State == bus.Sent || d.State == bus.Dead) {
			err = c.r.outbox.ForgetPreview(tx, d.Message.Stream)
		}
		return err
	})
	if err != nil {
		c.r.log.ErrorContext(ctx, "outbox not written", "to", c.to.String(), "id", d.ID, "err", err)
		return false, firstRetry
	}
	return ok, 0
}

// failed notes a failed try of d and sets when the next one may be. over reports that there is
// none.
func (c *chat) failed(ctx context.Context, d *bus.Delivery, err error, editing bool) (over bool) {
	now := c.r.now()
	refused := errors.Is(err, ErrRefused)
	if editing && refused {
		c.preview.drop(len(d.IDs)) // it is gone: the text goes as a new message
		return false
	}
	limit, limited := errors.AsType[*RateError](err)
	d.State, d.Error = bus.Waiting, err.Error()
	switch {
	case limited:
		c.notBefore = now.Add(limit.After)
		if limit.Account {
			c.a.pause(c.notBefore)
		}
	case errors.Is(err, ErrUncertain):
		c.r.uncertain(ctx, d)
		fallthrough
	default:
		d.Attempts++
		c.notBefore = now.Add(backoff(d.Attempts))
	}
	if refused || now.Sub(d.Created) > maxAge {
		d.State = bus.Dead
		c.notBefore = time.Time{}
	}
	if _, wait := c.save(ctx, d); wait > 0 {
		c.notBefore = now.Add(wait)
		return false
	}
	if d.State == bus.Dead {
		c.r.stats.Dead.Add(1)
		c.r.log.ErrorContext(ctx, "message given up: see gateway outbox list",
			"to", c.to.String(), "id", d.ID, "err", err)
		return true
	}
	c.r.log.WarnContext(ctx, "message not sent yet", "to", c.to.String(), "id", d.ID,
		"attempts", d.Attempts, "retry", c.notBefore.Sub(now), "err", err)
	return false
}

// backoff returns how long to wait after so many failed tries: twice as long each time, and up to a
// quarter more or less, so that chats which failed together don't come back together.
func backoff(attempts int) time.Duration {
	d := min(firstRetry<<min(attempts-1, 20), lastRetry)
	return d*3/4 + rand.N(d/2)
}
