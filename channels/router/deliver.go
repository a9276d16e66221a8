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
	maxTried   = 24 * time.Hour // of tries and the waits between them
	maxCounted = time.Hour      // the longest wait that counts, so that there are many tries
	slackTime  = time.Minute    // the longest duration of a try that counts
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// deliver makes the next try of d, and of the parts after it while they succeed. It returns how
// long to wait before the next call; 0 if d was sent or given up.
func (c *conversation) deliver(ctx context.Context, d *bus.Delivery) time.Duration {
	defer c.release()
	limits := c.a.limits(c.to)
	if c.current != d {
		if wait := c.stopPreviews(ctx, d.Message.Stops); wait > 0 {
			return wait
		}
		if over, wait := c.begin(ctx, d); over || wait > 0 {
			return wait
		}
	}
	for {
		if wait := c.mustWait(d, limits); wait > 0 {
			c.markWaiting(ctx, d)
			return wait
		}
		if over := c.try(ctx, d, limits); over {
			return 0
		}
	}
}

// begin claims the preview that d replaces. If an earlier process crashed during a try of d, it
// counts that, and gives d up after the third time in a row. wait is how long to wait if that could
// not be written.
func (c *conversation) begin(ctx context.Context, d *bus.Delivery) (over bool, wait time.Duration) {
	c.uncertainSince = time.Time{}
	if d.State == bus.Sending || d.Attempts > 0 { // by an earlier process, or long ago
		c.uncertainSince = d.Created
	}
	uncertain := d.Uncertain
	if d.State == bus.Sending {
		if !c.a.deduplicates {
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
	c.current, c.shown, c.retryAt, c.lastTry = d, messages{}, time.Time{}, time.Time{}
	c.planned, c.sending, c.parts = false, false, nil
	if s := d.Message.Stream; s != "" {
		if shown := c.claimPreview(s); c.a.editor != nil {
			c.shown = shown
		}
	}
	return false, 0
}

// mustWait returns how long d must wait before its next try.
func (c *conversation) mustWait(d *bus.Delivery, limits channels.Limits) time.Duration {
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
	wait := c.a.reserve(&c.reservation, c.to, limits, now)
	c.reserved = wait == 0
	return wait
}

// needsPass reports whether the next try of d will send a new message, as far as is known.
func (c *conversation) needsPass(d *bus.Delivery) bool {
	n := len(d.IDs)
	return n >= c.shown.usable && (!c.planned || n < len(c.parts))
}

// admit returns how long d must wait for other conversations: while its platform can't be reached,
// or while a delivery is tried that may end the process.
func (c *conversation) admit(d *bus.Delivery, now time.Time) time.Duration {
	c.r.mu.Lock()
	wait := c.r.suspects.admit(c, d, now)
	c.r.mu.Unlock()
	if wait > 0 {
		return wait
	}
	return c.a.admit(c, now)
}

// release ends what admit has begun.
func (c *conversation) release() {
	c.a.release(c)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.suspects.release(c) {
		for _, other := range c.r.conversations {
			other.signal()
		}
	}
}

// try makes the next try of d. over reports that d needs no other. The table is marked before d is
// worked on, so that the next process knows which delivery ended this one.
func (c *conversation) try(
	ctx context.Context, d *bus.Delivery, limits channels.Limits,
) (over bool) {
	start := c.r.now()
	if !c.sending && (!c.planned || len(d.IDs) < len(c.parts)) {
		if ok, err := c.markSending(ctx, d); !ok {
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
	if n == len(c.parts) { // all parts are sent, but that could not be written
		return c.finish(ctx, d, start)
	}
	if !c.sending {
		if ok, err := c.markSending(ctx, d); !ok {
			return err == nil
		}
	}
	c.reserved = c.reserved && n < c.shown.usable
	fault.Point("sending")
	var id string
	err := c.withRecover(ctx, func() (err error) {
		id, err = c.put(ctx, d, n)
		return err
	})
	if errors.Is(err, errGone) {
		c.shown.dropFrom(n)
		return false
	}
	if err != nil {
		return c.failed(ctx, d, err)
	}
	fault.Point("sent")
	c.reached(ctx)
	c.uncertainSince = time.Time{}
	d.IDs = append(d.IDs, id)
	d.Attempts, d.Crashes, d.Error, c.sending = 0, 0, "", false
	if n+1 < len(c.parts) {
		return false
	}
	return c.finish(ctx, d, start)
}

// markSending notes in the table that d is being sent. ok is as in save.
func (c *conversation) markSending(ctx context.Context, d *bus.Delivery) (ok bool, err error) {
	d.State = bus.Sending
	ok, err = c.save(ctx, d)
	c.sending = ok
	return ok, err
}

// markWaiting notes in the table that d waits after all.
func (c *conversation) markWaiting(ctx context.Context, d *bus.Delivery) {
	if !c.sending {
		return
	}
	d.State = bus.Waiting
	if _, err := c.save(ctx, d); err == nil { // else it counts as a try, should the process end
		c.sending = false
	}
}

// split plans the parts of d.
func (c *conversation) split(ctx context.Context, d *bus.Delivery, limits channels.Limits) error {
	known := len(d.Parts)
	err := c.withRecover(ctx, func() error {
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
	c.sending = c.sending && len(d.Parts) == known // the split is stored before the first part is sent
	for i, p := range c.parts {                    // files and buttons can't be added by an edit
		if p.file != nil || len(p.buttons) > 0 {
			c.shown.usable = min(c.shown.usable, i)
		}
	}
	return nil
}

// reached notes that the platform has answered, and wakes the conversations that waited for that.
func (c *conversation) reached(ctx context.Context) {
	c.a.mu.Lock()
	closed := c.a.breaker.reached()
	c.a.mu.Unlock()
	if !closed {
		return
	}
	c.r.log.InfoContext(ctx, "platform is reached again", "account", c.a.Name)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for _, other := range c.r.conversations {
		if other.a == c.a {
			other.signal()
		}
	}
}

// unreached notes that the platform did not answer.
func (c *conversation) unreached(ctx context.Context, err error) {
	c.a.mu.Lock()
	opened := c.a.breaker.failed(c, c.r.now())
	c.a.mu.Unlock()
	if opened {
		c.r.log.WarnContext(ctx, "platform can't be reached: one conversation at a time tries, "+
			"the others wait", "account", c.a.Name, "err", err)
	}
}

// errGone reports that a message of the preview can't be edited any more.
var errGone = errors.New("message of the preview is gone")

// withRecover calls f, which works with a message. If f panics, the message counts as refused by
// the platform. Otherwise it would end this process and every one after it.
func (c *conversation) withRecover(ctx context.Context, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.r.log.ErrorContext(ctx, "delivery panicked", "to", c.to.String(),
				"panic", channels.PanicText(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: the gateway has a bug: %s", channels.ErrRefused, channels.PanicText(p))
		}
	}()
	return f()
}

// put shows the part of d with index n: by an edit of the preview's message with that index, if
// there is one, or as a new message.
func (c *conversation) put(ctx context.Context, d *bus.Delivery, n int) (id string, err error) {
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
	if c.shown.lost != "" && n == len(c.shown.ids) && part.File == nil && len(part.Buttons) == 0 {
		return c.resendLost(ctx, part)
	}
	if n >= c.shown.usable {
		return c.send(ctx, part, d)
	}
	id = c.shown.ids[n]
	if c.shown.texts[n] == part.Text {
		return id, nil
	}
	err = c.a.editor.Edit(ctx, c.to, id, part.Text)
	switch {
	case errors.Is(err, channels.ErrRefused):
		return "", errGone
	case errors.Is(err, channels.ErrUncertain):
		return "", errors.New(err.Error()) // certainty does not matter: an edit can be repeated
	}
	if err == nil {
		c.shown.texts[n] = part.Text
	}
	return id, err
}

// A memoryFile is a file in memory.
type memoryFile struct{ *strings.Reader }

// Close implements [io.Closer].
func (memoryFile) Close() error { return nil }

// send sends a part as a new message. If an earlier try may have sent it already, and the platform
// may have forgotten its key since, it looks for that message first.
func (c *conversation) send(
	ctx context.Context, part bus.Part, d *bus.Delivery,
) (id string, err error) {
	now := c.r.now()
	doubt := !c.uncertainSince.IsZero()
	if f := c.a.finder; f != nil && doubt && now.Sub(c.uncertainSince) >= f.KeyTime() {
		last, err := c.r.outbox.LastSent(c.r.db.Read(ctx), d)
		if err == nil {
			known := slices.Concat(d.IDs, c.shown.ids, last)
			id, err = f.Find(ctx, part, known, c.uncertainSince)
		}
		if err != nil || id != "" {
			return id, err
		}
	}
	id, err = c.a.Channel.Send(ctx, part)
	_, limited := errors.AsType[*channels.RateError](err)
	if err != nil && !limited && c.uncertainSince.IsZero() {
		c.uncertainSince = now
	}
	return id, err
}

// resendLost sends a part whose message may exist already, as a message of the preview whose id was
// lost. It sends the part under that message's key: a platform that knows the key returns the id of
// the existing message, which is then edited to the text of the part.
func (c *conversation) resendLost(ctx context.Context, part bus.Part) (id string, err error) {
	part.Key = c.shown.lost
	if id, err = c.a.Channel.Send(ctx, part); err != nil {
		return "", err
	}
	c.shown.lost = ""
	err = c.a.editor.Edit(ctx, c.to, id, part.Text)
	if err == nil || errors.Is(err, channels.ErrRefused) {
		return id, nil
	}
	c.shown.add(id, "") // the next try finds it there
	if errors.Is(err, channels.ErrUncertain) {
		err = errors.New(err.Error())
	}
	return "", err
}

// finish ends d after all its parts were sent.
func (c *conversation) finish(ctx context.Context, d *bus.Delivery, start time.Time) (over bool) {
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
	// answers has the ids of the messages received. It connects this line with theirs.
	c.r.log.InfoContext(ctx, "message sent", "to", c.to.String(), "id", id,
		"answers", d.Message.Answers, "took", c.r.now().Sub(start))
	return true
}

// removeRest removes the messages of the preview that are left over because the answer is shorter.
// It returns an error only if that must be tried again.
func (c *conversation) removeRest(ctx context.Context, used []string) error {
	for _, id := range c.shown.ids {
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

// save stores the progress of d, together with notices about it. ok is false if that failed and d
// is to be tried again, or if somebody has dropped d.
func (c *conversation) save(
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

// failed notes a failed try of d and sets the time of the next. over reports that there will be
// none.
func (c *conversation) failed(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	now := c.r.now()
	if !c.lastTry.IsZero() { // else it was tried for the first time since the start
		d.Tried += min(now.Sub(c.lastTry), c.lastWait+slackTime)
	}
	wait := time.Duration(0)
	d.State, d.Error, d.Crashes, c.sending = bus.Waiting, err.Error(), 0, false
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
	c.lastTry, c.lastWait = now, min(wait, maxCounted)
	if errors.Is(err, channels.ErrRefused) || d.Tried >= maxTried {
		return c.giveUp(ctx, d, err)
	}
	ok, failed := c.save(ctx, d)
	if failed != nil {
		return false
	}
	if !ok { // somebody dropped it and needs no notice
		return true
	}
	c.r.log.WarnContext(ctx, "message not sent yet", "to", c.to.String(), "id", d.ID,
		"attempts", d.Attempts, "retry", wait, "err", err)
	return false
}

// giveUp makes d a dead letter because of err, takes the reactions off the messages that d answers,
// and tells people that no answer comes. over reports that this was stored.
func (c *conversation) giveUp(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	d.State, d.Error = bus.Dead, err.Error()
	var notices []bus.OutboundMessage
	if d.Message.Notice {
		d.State = bus.Dropped // nobody has to deal with a lost notice
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

// backoff returns how long to wait after a number of failed tries: twice as long each time, up to a
// quarter more or less, so that chats that failed together are not tried again together.
func backoff(attempts int) time.Duration {
	d := min(firstRetry<<min(attempts-1, 20), lastRetry)
	return d*3/4 + rand.N(d/2)
}
