package channels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"gateway/bus"
	"gateway/store"
	"gateway/store/fault"
)

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
	if c.current != d {
		c.begin(ctx, d, limits)
	}
	for {
		if wait := c.mustWait(d, limits); wait > 0 {
			return wait
		}
		if over := c.try(ctx, d); over {
			return 0
		}
	}
}

// begin splits d and takes over the preview that it ends.
func (c *chat) begin(ctx context.Context, d *bus.Delivery, limits Limits) {
	c.current, c.old, c.retryAt = d, messages{}, time.Time{}
	c.parts = c.plan(ctx, d, limits)
	if s := d.Message.Stream; s != "" {
		if shown := c.takeOver(s); c.a.editor != nil {
			c.old = shown
		}
		for i, p := range c.parts { // what is more than text is no edit
			if p.file != nil || len(p.buttons) > 0 {
				c.old.usable = min(c.old.usable, i)
			}
		}
	}
}

// mustWait returns how long to wait before the next try of d.
func (c *chat) mustWait(d *bus.Delivery, limits Limits) time.Duration {
	now := c.r.now()
	if wait := c.retryAt.Sub(now); wait > 0 {
		return wait
	}
	if n := len(d.IDs); n == len(c.parts) || n < c.old.usable {
		return c.a.wait(c.to.Chat, now) // no new message will be sent
	}
	return c.a.reserve(&c.pass, c.to, limits, now)
}

// try makes the next try of d. over reports that it needs no other.
func (c *chat) try(ctx context.Context, d *bus.Delivery) (over bool) {
	start := c.r.now()
	n := len(d.IDs)
	if n == len(c.parts) { // but that could not be written
		return c.finish(ctx, d, start)
	}
	d.State = bus.Sending
	if ok, err := c.save(ctx, d); !ok {
		return err == nil
	}
	fault.Point("sending")
	var id string
	err := c.guard(ctx, func() (err error) {
		id, err = c.put(ctx, d, n)
		return err
	})
	if errors.Is(err, errGone) {
		c.old.cut(n)
		return false
	}
	if err != nil {
		return c.failed(ctx, d, err)
	}
	fault.Point("sent")
	d.IDs = append(d.IDs, id)
	d.Attempts, d.Error = 0, ""
	if n+1 < len(c.parts) {
		return false
	}
	return c.finish(ctx, d, start)
}

// errGone reports that a message of a preview can't be edited.
var errGone = errors.New("message of the preview is gone")

// guard calls f, which works with a message. One that some channel's code can't stand counts as
// refused by the platform: else it would end the process, and each one after it, for ever.
func (c *chat) guard(ctx context.Context, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.r.log.ErrorContext(ctx, "delivery panicked", "to", c.to.String(),
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: the gateway has a bug: %v", ErrRefused, p)
		}
	}()
	return f()
}

// put makes people see the part of d with index n: in place of the preview's message, if there
// is one, else as a new message.
func (c *chat) put(ctx context.Context, d *bus.Delivery, n int) (id string, err error) {
	planned := c.parts[n]
	part := bus.Part{Key: d.Key(n), To: c.to, Text: planned.text, Buttons: planned.buttons}
	if n == 0 {
		part.ReplyTo = d.Message.ReplyTo
	}
	if f := planned.file; f != nil {
		part.File = &bus.File{Attachment: *f, Open: func() (io.ReadSeekCloser, error) {
			return c.r.media.Open(f.Path)
		}}
	}
	if c.old.lost != "" && n == len(c.old.ids) && part.File == nil && len(part.Buttons) == 0 {
		return c.recover(ctx, part)
	}
	if n >= c.old.usable {
		return c.a.Channel.Send(ctx, part)
	}
	id = c.old.ids[n]
	if c.old.texts[n] == part.Text {
		return id, nil
	}
	err = c.a.editor.Edit(ctx, c.to, id, part.Text)
	switch {
	case errors.Is(err, ErrRefused):
		return "", errGone
	case errors.Is(err, ErrUncertain):
		return "", errors.New(err.Error()) // an edit that is made twice shows once
	}
	if err == nil {
		c.old.texts[n] = part.Text
	}
	return id, err
}

// recover makes people see a part where the message of the preview may stand already that should
// hold it, under an id that is not known: it is sent under that message's key, so that a platform
// which knows that key names the message that it has, and then made to say what it shall.
func (c *chat) recover(ctx context.Context, part bus.Part) (id string, err error) {
	part.Key = c.old.lost
	if id, err = c.a.Channel.Send(ctx, part); err != nil {
		return "", err
	}
	c.old.lost = ""
	err = c.a.editor.Edit(ctx, c.to, id, part.Text)
	if err == nil || errors.Is(err, ErrRefused) {
		return id, nil
	}
	c.old.add(id, "") // where the next try finds it
	if errors.Is(err, ErrUncertain) {
		err = errors.New(err.Error())
	}
	return "", err
}

// finish ends d, all parts of which are sent.
func (c *chat) finish(ctx context.Context, d *bus.Delivery, start time.Time) (over bool) {
	if err := c.removeRest(ctx, d.IDs); err != nil {
		return c.failed(ctx, d, err)
	}
	d.State = bus.Sent
	if _, err := c.save(ctx, d); err != nil {
		return false
	}
	fault.Point("delivered")
	id := d.IDs[len(d.IDs)-1]
	if c.a.finisher != nil {
		c.a.finisher.Finish(ctx, c.to, id)
	}
	c.a.marks.answered(c.to, d.Message.Answers, c.r.now())
	c.r.count(c.to.Account, func(s *Stats) { s.Sent.Add(1) })
	c.r.Delivered(d.Message)
	// By answers, the ids of messages received, the lines of a message in and out can be joined.
	c.r.log.InfoContext(ctx, "message sent", "to", c.to.String(), "id", id,
		"answers", d.Message.Answers, "took", c.r.now().Sub(start))
	return true
}

// removeRest removes the messages of the preview that the answer does not fill: it came out
// shorter. It reports an error only if that must be tried again.
func (c *chat) removeRest(ctx context.Context, used []string) error {
	for _, id := range c.old.ids {
		if c.a.remover == nil || slices.Contains(used, id) {
			continue
		}
		err := c.a.remover.Remove(ctx, c.to, id)
		if _, ok := errors.AsType[*RateError](err); ok {
			return err
		}
		if err != nil && !errors.Is(err, ErrRefused) {
			c.r.log.WarnContext(ctx, "rest of a preview stays", "to", c.to.String(), "id", id,
				"err", err)
		}
	}
	return nil
}

// save writes how far d has come. ok is false if that failed, and d is to be tried again, or if
// a person has dropped d.
func (c *chat) save(ctx context.Context, d *bus.Delivery) (ok bool, err error) {
	err = c.r.db.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		ok, err = c.r.outbox.Save(tx, d, c.r.now())
		over := !ok || d.State == bus.Sent || d.State == bus.Dead
		if err == nil && over && d.Message.Stream != "" {
			err = c.r.outbox.ForgetPreview(tx, d.Message.Stream)
		}
		return err
	})
	if err != nil {
		c.r.log.ErrorContext(ctx, "outbox not written", "to", c.to.String(), "id", d.ID, "err", err)
		c.retryAt = c.r.now().Add(firstRetry)
		return false, err
	}
	return ok, nil
}

// failed notes a failed try of d and sets when the next one may be. over reports that there is
// none.
func (c *chat) failed(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	now := c.r.now()
	wait := time.Duration(0)
	d.State, d.Error = bus.Waiting, err.Error()
	if limit, ok := errors.AsType[*RateError](err); ok && limit.After > 0 {
		wait = limit.After
		c.a.pause(limit, c.to.Chat, now)
	} else {
		if errors.Is(err, ErrUncertain) {
			c.r.uncertain(ctx, d)
		}
		d.Attempts++
		wait = backoff(d.Attempts)
		c.retryAt = now.Add(wait)
	}
	if errors.Is(err, ErrRefused) || now.Sub(d.Created) > maxAge {
		d.State = bus.Dead
	}
	ok, failed := c.save(ctx, d)
	switch {
	case failed != nil:
		return false
	case !ok: // dropped by a person
		return true
	case d.State == bus.Dead:
		c.r.count(c.to.Account, func(s *Stats) { s.Dead.Add(1) })
		c.r.log.ErrorContext(ctx, "message given up: see gateway outbox list",
			"to", c.to.String(), "id", d.ID, "err", err)
		return true
	}
	c.r.log.WarnContext(ctx, "message not sent yet", "to", c.to.String(), "id", d.ID,
		"attempts", d.Attempts, "retry", wait, "err", err)
	return false
}

// backoff returns how long to wait after so many failed tries: twice as long each time, and up to a
// quarter more or less, so that chats which failed together don't come back together.
func backoff(attempts int) time.Duration {
	d := min(firstRetry<<min(attempts-1, 20), lastRetry)
	return d*3/4 + rand.N(d/2)
}
