package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
	"gateway/store/fault"
)

// How long a message is tried.
const (
	maxTried   = 24 * time.Hour // spent on tries, with the waits between them
	maxCounted = time.Hour      // of the wait between two tries, so that there are many of them
	slackTime  = time.Minute    // that a try may take
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// deliver makes the next try of d and of the parts after it, and returns how long to wait before
// it is to be called again: 0 when d is over.
func (c *chat) deliver(ctx context.Context, d *bus.Delivery) time.Duration {
	defer c.leave()
	limits := c.a.limits(c.to)
	if c.current != d {
		if wait := c.stop(ctx, d.Message.Stops); wait > 0 {
			return wait
		}
		if over, wait := c.begin(ctx, d); over || wait > 0 {
			return wait
		}
	}
	for {
		if wait := c.mustWait(d, limits); wait > 0 {
			c.unmark(ctx, d)
			return wait
		}
		if over := c.try(ctx, d, limits); over {
			return 0
		}
	}
}

// begin takes over the preview that d ends. A try of d that an earlier process has ended with is
// counted, and with the third one in a row d is over. It returns how long to wait if that could not
// be written.
func (c *chat) begin(ctx context.Context, d *bus.Delivery) (over bool, wait time.Duration) {
	c.doubt = time.Time{}
	if d.State == bus.Sending || d.Attempts > 0 { // by an earlier process, or long ago
		c.doubt = d.Created
	}
	uncertain := d.Uncertain
	if d.State == bus.Sending {
		if !c.a.once {
			c.r.uncertain(ctx, d)
		}
		if !c.r.orderly {
			d.Crashes++
		}
		d.State = bus.Waiting
	}
	if d.Crashes >= maxCrashes {
		if c.giveUp(ctx, d, errors.New("the gateway has ended three times while it sent this")) {
			return true, 0
		}
		d.State, d.Crashes, d.Uncertain = bus.Sending, d.Crashes-1, uncertain
		return false, firstRetry
	}
	c.current, c.old, c.retryAt, c.since = d, messages{}, time.Time{}, time.Time{}
	c.planned, c.marked, c.parts = false, false, nil
	if s := d.Message.Stream; s != "" {
		if shown := c.takeOver(s); c.a.editor != nil {
			c.old = shown
		}
	}
	return false, 0
}

// mustWait returns how long to wait before the next try of d.
func (c *chat) mustWait(d *bus.Delivery, limits channels.Limits) time.Duration {
	now := c.r.now()
	if wait := c.retryAt.Sub(now); wait > 0 {
		return wait
	}
	if wait := c.admit(d, now); wait > 0 {
		return wait
	}
	if c.reserved || !c.needsPass(d) {
		return c.a.wait(c.to, now)
	}
	wait := c.a.reserve(&c.pass, c.to, limits, now)
	c.reserved = wait == 0
	return wait
}

// needsPass reports whether the next try of d sends a new message, as far as that is known.
func (c *chat) needsPass(d *bus.Delivery) bool {
	n := len(d.IDs)
	return n >= c.old.usable && (!c.planned || n < len(c.parts))
}

// admit returns how long d must wait for others: while its platform can't be reached, or while
// something is tried that may end the process.
func (c *chat) admit(d *bus.Delivery, now time.Time) time.Duration {
	c.r.mu.Lock()
	wait := c.r.suspect.admit(c, d, now)
	c.r.mu.Unlock()
	if wait > 0 {
		return wait
	}
	return c.a.admit(c, now)
}

// leave ends what admit has begun.
func (c *chat) leave() {
	c.a.leave(c)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.suspect.leave(c) {
		for _, other := range c.r.chats {
			other.ring()
		}
	}
}

// try makes the next try of d. over reports that it needs no other. d is marked in the table before
// anything is done with it: what ends the process must be known to the next one.
func (c *chat) try(ctx context.Context, d *bus.Delivery, limits channels.Limits) (over bool) {
	start := c.r.now()
	if !c.marked && (!c.planned || len(d.IDs) < len(c.parts)) {
		if ok, err := c.mark(ctx, d); !ok {
			return err == nil
		}
	}
	if !c.planned {
		if err := c.split(ctx, d, limits); err != nil {
			return c.failed(ctx, d, err)
		}
		if c.needsPass(d) && !c.reserved {
			return false
		}
	}
	n := len(d.IDs)
	if n == len(c.parts) { // but that could not be written
		return c.finish(ctx, d, start)
	}
	if !c.marked {
		if ok, err := c.mark(ctx, d); !ok {
			return err == nil
		}
	}
	c.reserved = c.reserved && n < c.old.usable
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
	c.reached(ctx)
	c.doubt = time.Time{}
	d.IDs = append(d.IDs, id)
	d.Attempts, d.Crashes, d.Error, c.marked = 0, 0, "", false
	if n+1 < len(c.parts) {
		return false
	}
	return c.finish(ctx, d, start)
}

// mark notes in the table that d is on its way. ok is as in save.
func (c *chat) mark(ctx context.Context, d *bus.Delivery) (ok bool, err error) {
	d.State = bus.Sending
	ok, err = c.save(ctx, d)
	c.marked = ok
	return ok, err
}

// unmark notes that d waits after all.
func (c *chat) unmark(ctx context.Context, d *bus.Delivery) {
	if !c.marked {
		return
	}
	d.State = bus.Waiting
	if _, err := c.save(ctx, d); err == nil { // else it counts as a try, should the process end
		c.marked = false
	}
}

// split makes the parts of d.
func (c *chat) split(ctx context.Context, d *bus.Delivery, limits channels.Limits) error {
	known := len(d.Parts)
	err := c.guard(ctx, func() error {
		c.parts = c.plan(ctx, d, limits)
		return nil
	})
	if err == nil && len(c.parts) == 0 {
		err = fmt.Errorf("%w: there is nothing in it", channels.ErrRefused)
	}
	if err != nil {
		return err
	}
	c.planned = true
	c.marked = c.marked && len(d.Parts) == known // how a text was split is noted before it is sent
	for i, p := range c.parts {                  // what is more than text is no edit
		if p.file != nil || len(p.buttons) > 0 {
			c.old.usable = min(c.old.usable, i)
		}
	}
	return nil
}

// reached notes that the platform has answered.
func (c *chat) reached(ctx context.Context) {
	c.a.mu.Lock()
	closed := c.a.breaker.reach()
	c.a.mu.Unlock()
	if !closed {
		return
	}
	c.r.log.InfoContext(ctx, "platform is reached again", "account", c.a.Name)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for _, other := range c.r.chats {
		if other.a == c.a {
			other.ring()
		}
	}
}

// unreached notes that the platform has not answered.
func (c *chat) unreached(ctx context.Context, err error) {
	c.a.mu.Lock()
	opened := c.a.breaker.fail(c, c.r.now())
	c.a.mu.Unlock()
	if opened {
		c.r.log.WarnContext(ctx, "platform can't be reached: one conversation at a time tries, "+
			"the others wait", "account", c.a.Name, "err", err)
	}
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
			err = fmt.Errorf("%w: the gateway has a bug: %v", channels.ErrRefused, p)
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
			if planned.content != "" {
				return memoryFile{strings.NewReader(planned.content)}, nil
			}
			return c.r.files.Open(f.Path)
		}}
	}
	if c.old.lost != "" && n == len(c.old.ids) && part.File == nil && len(part.Buttons) == 0 {
		return c.recover(ctx, part)
	}
	if n >= c.old.usable {
		return c.send(ctx, part, d)
	}
	id = c.old.ids[n]
	if c.old.texts[n] == part.Text {
		return id, nil
	}
	err = c.a.editor.Edit(ctx, c.to, id, part.Text)
	switch {
	case errors.Is(err, channels.ErrRefused):
		return "", errGone
	case errors.Is(err, channels.ErrUncertain):
		return "", errors.New(err.Error()) // an edit that is made twice shows once
	}
	if err == nil {
		c.old.texts[n] = part.Text
	}
	return id, err
}

// A memoryFile is one that needs not be closed.
type memoryFile struct{ *strings.Reader }

// Close implements [io.Closer].
func (memoryFile) Close() error { return nil }

// send sends a part as a new message, unless an earlier try has done so whose answer was lost, and
// the platform may have forgotten its key since.
func (c *chat) send(ctx context.Context, part bus.Part, d *bus.Delivery) (id string, err error) {
	now := c.r.now()
	if f := c.a.finder; f != nil && !c.doubt.IsZero() && now.Sub(c.doubt) >= f.KeyTime() {
		last, err := c.r.outbox.LastSent(c.r.db.Read(ctx), d)
		if err == nil {
			known := slices.Concat(d.IDs, c.old.ids, last)
			id, err = f.Find(ctx, part, known, c.doubt)
		}
		if err != nil || id != "" {
			return id, err
		}
	}
	id, err = c.a.Channel.Send(ctx, part)
	_, limited := errors.AsType[*channels.RateError](err)
	if err != nil && !limited && c.doubt.IsZero() {
		c.doubt = now
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
	if err == nil || errors.Is(err, channels.ErrRefused) {
		return id, nil
	}
	c.old.add(id, "") // where the next try finds it
	if errors.Is(err, channels.ErrUncertain) {
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
	for _, l := range c.r.listeners {
		l.Delivered(d.Message)
	}
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
		if _, ok := errors.AsType[*channels.RateError](err); ok {
			return err
		}
		if err != nil && !errors.Is(err, channels.ErrRefused) {
			c.r.log.WarnContext(ctx, "rest of a preview stays", "to", c.to.String(), "id", id,
				"err", err)
		}
	}
	return nil
}

// save writes how far d has come, and with it what is to be said about that. ok is false if that
// failed, and d is to be tried again, or if a person has dropped d.
func (c *chat) save(
	ctx context.Context, d *bus.Delivery, notices ...bus.OutboundMessage,
) (ok bool, err error) {
	err = c.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		ok, err = c.r.outbox.Save(tx, d, c.r.now())
		if err == nil && ok {
			err = c.r.putNotices(tx, c.to, notices)
		}
		over := !ok || d.State == bus.Sent || d.State == bus.Dead || d.State == bus.Dropped
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
	if !c.since.IsZero() { // else it was tried for the first time since the start
		d.Tried += min(now.Sub(c.since), c.waited+slackTime)
	}
	wait := time.Duration(0)
	d.State, d.Error, d.Crashes, c.marked = bus.Waiting, err.Error(), 0, false
	if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
		wait = limit.After
		c.a.pause(limit, c.to, now)
		c.reached(ctx)
	} else {
		if errors.Is(err, channels.ErrUncertain) {
			c.r.uncertain(ctx, d)
		}
		d.Attempts++
		wait = backoff(d.Attempts)
		c.retryAt = now.Add(wait)
		if errors.Is(err, channels.ErrRefused) {
			c.reached(ctx)
		} else {
			c.unreached(ctx, err)
		}
	}
	c.since, c.waited = now, min(wait, maxCounted)
	if errors.Is(err, channels.ErrRefused) || d.Tried >= maxTried {
		return c.giveUp(ctx, d, err)
	}
	ok, failed := c.save(ctx, d)
	if failed != nil {
		return false
	}
	if !ok { // dropped by a person, who is told nothing
		return true
	}
	c.r.log.WarnContext(ctx, "message not sent yet", "to", c.to.String(), "id", d.ID,
		"attempts", d.Attempts, "retry", wait, "err", err)
	return false
}

// giveUp makes d a dead letter because of err: people see no longer that an answer is on its way,
// and are told that none comes. over reports that this is written.
func (c *chat) giveUp(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	d.State, d.Error = bus.Dead, err.Error()
	var notices []bus.OutboundMessage
	if d.Message.Notice {
		d.State = bus.Dropped // nobody needs to look after it
	} else {
		var failed error
		if notices, failed = c.r.notices(ctx, d); failed != nil {
			c.r.log.ErrorContext(ctx, "nobody is told of a message that was given up",
				"to", c.to.String(), "id", d.ID, "err", failed)
		}
	}
	ok, failed := c.save(ctx, d, notices...)
	if failed != nil || !ok {
		return failed == nil
	}
	c.a.marks.answered(c.to, d.Message.Answers, c.r.now())
	if d.State == bus.Dead {
		c.r.count(c.to.Account, func(s *Stats) { s.Dead.Add(1) })
		c.r.log.ErrorContext(ctx, "message given up: see gateway outbox list",
			"to", c.to.String(), "id", d.ID, "err", err)
	} else {
		c.r.log.WarnContext(ctx, "notice of a message that was given up not delivered",
			"to", c.to.String(), "id", d.ID, "err", err)
	}
	return true
}

// backoff returns how long to wait after so many failed tries: twice as long each time, and up to a
// quarter more or less, so that chats which failed together don't come back together.
func backoff(attempts int) time.Duration {
	d := min(firstRetry<<min(attempts-1, 20), lastRetry)
	return d*3/4 + rand.N(d/2)
}
