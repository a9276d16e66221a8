package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/store"
	"gateway/store/fault"
)

// How long a message is retried.
const (
	maxTried   = 24 * time.Hour // total of attempts and the waits between them
	maxCounted = time.Hour      // longest wait that counts in full, so that there are many attempts
	slackTime  = time.Minute    // longest attempt that counts in full
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// A sender attempts the deliveries of a conversation, one after another.
type sender struct {
	c  *conversation
	r  *Router
	a  *account
	to bus.Address

	reserved       bool          // one new message may be sent
	outages        int           // of the account, as of the last attempt
	current        *bus.Delivery // the current delivery; the fields below belong to it
	retryAt        time.Time     // time before which it must not be retried
	lastTry        time.Time     // time of the last attempt
	lastWait       time.Duration // required wait after it
	uncertainSince time.Time     // since when its next part may have been sent; zero if it was not
	planned        bool          // parts is set
	sending        bool          // the table has the state "sending" and all progress
	crashed        bool          // an earlier process crashed during an attempt
	slot           *slot         // slot of a part that was sent, and that the table lacks; or nil
	parts          []part
	searched       *Secrets // for which parts were searched; nil: some were stored earlier
	shown          messages // the messages of its preview
}

// deliver attempts d, and its further parts as long as they succeed. It returns how long to wait
// before the next call, or 0 if d was sent or given up.
func (s *sender) deliver(ctx context.Context, d *bus.Delivery) time.Duration {
	defer s.release()
	limits := s.a.limits(s.to)
	if s.current != d {
		if wait := s.c.display.stopPreviews(ctx, d.Message.Stops); wait > 0 {
			if d.Fresh { // it has to wait after all, and may be dropped meanwhile
				d.Fresh, s.sending = false, true
				s.markWaiting(ctx, d)
			}
			return wait
		}
		if over, wait := s.begin(ctx, d); over || wait > 0 {
			return wait
		}
	}
	for {
		if wait := s.mustWait(ctx, d, limits); wait > 0 {
			s.markWaiting(ctx, d)
			return wait
		}
		if over := s.try(ctx, d, limits); over {
			return 0
		}
	}
}

// begin claims the preview that d replaces. If an earlier process crashed during an attempt at d,
// begin counts the crash and gives d up after the third one in a row. wait is how long to wait if
// that could not be stored.
func (s *sender) begin(ctx context.Context, d *bus.Delivery) (over bool, wait time.Duration) {
	s.uncertainSince = time.Time{}
	tried := d.State == bus.Sending && d.ID <= s.r.position.first // by an earlier process
	if tried || d.Attempts > 0 {
		s.uncertainSince = d.Created
	}
	uncertain := d.Uncertain
	if tried {
		if !s.a.deduplicates && d.Message.Leave == nil {
			s.r.uncertain(ctx, d)
		}
		if !s.r.orderly {
			d.Crashes++
		}
		d.State = bus.Waiting
	}
	if d.Crashes >= maxCrashes {
		if s.giveUp(ctx, d, errors.New("the gateway has crashed three times while it sent this")) {
			return true, 0
		}
		d.State, d.Crashes, d.Uncertain = bus.Sending, d.Crashes-1, uncertain
		return false, firstRetry
	}
	s.current, s.shown, s.retryAt, s.lastTry = d, messages{}, time.Time{}, time.Time{}
	if d.Error != "" && d.Changed.After(s.r.position.began) {
		// It was tried since the start, but its conversation had to give up its worker.
		s.lastTry, s.lastWait = d.Changed, maxCounted
		if d.Attempts > 0 && !d.Changed.After(s.r.now()) { // otherwise the clock was set back
			// The rest of its wait holds. Outages that are over don't shorten it.
			s.outages, s.retryAt = s.a.outages(), d.Changed.Add(backoff(d.Attempts))
		}
	}
	// A delivery from the table is always marked before it is sent. The mark fails if it was sent
	// since the table was read.
	s.planned, s.sending, s.parts = false, d.Fresh, nil
	s.crashed = d.Crashes > 0
	if stream := d.Message.Stream; stream != "" {
		if shown := s.c.display.claimPreview(stream); s.a.editor != nil {
			s.shown = shown
		}
	}
	return false, 0
}

// mustWait returns how long d must wait before its next attempt.
func (s *sender) mustWait(
	ctx context.Context, d *bus.Delivery, limits channels.Limits,
) time.Duration {
	now := s.r.now()
	if n := s.a.outages(); n != s.outages { // the wait ends with the outage
		s.outages, s.retryAt = n, time.Time{}
	}
	if wait := s.retryAt.Sub(now); wait > 0 {
		return wait
	}
	if len(d.IDs) == 0 { // otherwise people would read another message between its parts
		if wait := s.c.behind(ctx, d.ID); wait > 0 {
			return wait
		}
	}
	if wait := s.admit(d, now); wait > 0 {
		return wait
	}
	if s.reserved || !s.needsSlot(d) {
		return s.a.wait(s.to, now)
	}
	wait := s.a.reserve(&s.c.reservation, s.to, limits, now)
	s.reserved = wait == 0
	return wait
}

// needsSlot reports whether the next attempt at d will probably send a new message.
func (s *sender) needsSlot(d *bus.Delivery) bool {
	n := len(d.IDs)
	return n >= s.shown.usable && (!s.planned || n < len(s.parts))
}

// admit returns how long d must wait for other conversations: while its platform is unreachable, or
// while a suspect is tried.
func (s *sender) admit(d *bus.Delivery, now time.Time) time.Duration {
	s.r.mu.Lock()
	wait := s.r.suspects.admit(s.c, d, now)
	s.r.mu.Unlock()
	if wait > 0 {
		return wait
	}
	return s.a.admit(s.c, now)
}

// release ends what admit has begun.
func (s *sender) release() {
	s.freeSlot() // a part that could not be saved must not delay other conversations
	s.a.release(s.c)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.suspects.release(s.c) {
		for _, other := range s.r.conversations {
			other.wake.Ring()
		}
	}
}

// try makes the next attempt at d. over reports that d needs no further one. The table is marked
// before the attempt, so that the next process knows which delivery crashed this one.
func (s *sender) try(
	ctx context.Context, d *bus.Delivery, limits channels.Limits,
) (over bool) {
	if d.Message.Leave != nil {
		return leaveGroup(ctx, s, d)
	}
	start := s.r.now()
	if !s.sending && (!s.planned || len(d.IDs) < len(s.parts)) {
		if ok, err := s.markSending(ctx, d); !ok {
			return err == nil
		}
	}
	if !s.planned {
		if err := s.split(ctx, d, limits); err != nil {
			return s.failed(ctx, d, err)
		}
		if s.needsSlot(d) && !s.reserved {
			return false
		}
	}
	n := len(d.IDs)
	if n >= len(s.parts) { // all parts are sent, but that is not stored yet
		return s.finish(ctx, d, start)
	}
	if !s.sending {
		if ok, err := s.markSending(ctx, d); !ok {
			return err == nil
		}
	}
	s.reserved = s.reserved && n < s.shown.usable
	fault.Point("sending")
	var id string
	err := s.c.withRecover(ctx, func() (err error) {
		id, err = s.showPart(ctx, d, n)
		return err
	})
	if s.slot != nil {
		s.slot.answer()
	}
	if errors.Is(err, errGone) {
		s.shown.dropFrom(n)
		return false
	}
	if replaceFile(s.parts, n, err, limits) {
		s.r.log.WarnContext(ctx, "file refused; a text replaces it", "to", s.to.String(), "err", err)
		s.recordReply(ctx)
		s.freeSlot()
		return false
	}
	if err != nil {
		return s.failed(ctx, d, err)
	}
	fault.Point("sent")
	if s.slot != nil {
		s.slot.record(d, id)
	}
	fault.Point("recorded")
	s.recordReply(ctx)
	s.uncertainSince = time.Time{}
	d.IDs = append(d.IDs, id)
	d.Attempts, d.Crashes, d.Error, s.sending = 0, 0, "", false
	if n+1 < len(s.parts) { // store it now: the next part may have to wait long
		ok, err := s.markSending(ctx, d)
		return !ok && err == nil
	}
	return s.finish(ctx, d, start)
}

// markSending records in the table that d is being sent. ok is as in save.
func (s *sender) markSending(ctx context.Context, d *bus.Delivery) (ok bool, err error) {
	d.State = bus.Sending
	ok, err = s.save(ctx, d)
	s.sending = ok
	return ok, err
}

// markWaiting records in the table that d is waiting again.
func (s *sender) markWaiting(ctx context.Context, d *bus.Delivery) {
	if !s.sending {
		return
	}
	d.State = bus.Waiting
	if _, err := s.save(ctx, d); err == nil { // otherwise a crash counts as an attempt
		s.sending = false
	}
}

// split plans the parts of d.
func (s *sender) split(ctx context.Context, d *bus.Delivery, limits channels.Limits) error {
	known := len(d.Parts)
	if s.searched = s.r.secrets.Load(); known > 0 {
		s.searched = nil
	}
	err := s.c.withRecover(ctx, func() error {
		s.parts = s.plan(ctx, d, limits)
		return nil
	})
	if err == nil && len(s.parts) == 0 {
		err = fmt.Errorf("%w: the message is empty", channels.ErrRefused)
	}
	if err != nil {
		return err
	}
	s.planned = true
	s.sending = s.sending && len(d.Parts) == known // store the split before the first part is sent
	for i, p := range s.parts {                    // an edit can't add files and buttons
		if p.file != nil || len(p.buttons) > 0 {
			s.shown.usable = min(s.shown.usable, i)
		}
	}
	return nil
}

// recordReply records that the platform has answered, and wakes the conversations that waited for
// that.
func (s *sender) recordReply(ctx context.Context) {
	s.a.mu.Lock()
	closed := s.a.breaker.reached()
	s.a.mu.Unlock()
	if !closed {
		return
	}
	s.r.log.InfoContext(ctx, "platform is reachable again", "account", s.a.Name)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, other := range s.r.conversations {
		if other.a == s.a {
			other.wake.Ring()
		}
	}
}

// recordNoReply records that the platform did not answer. It reports whether the platform counts
// as unreachable.
func (s *sender) recordNoReply(ctx context.Context, err error) (unreachable bool) {
	s.a.mu.Lock()
	opened := s.a.breaker.failed(s.c, s.r.now())
	unreachable = s.a.breaker.open
	s.a.mu.Unlock()
	if opened {
		s.r.log.WarnContext(ctx, "platform is unreachable: one conversation at a time tries, "+
			"the others wait", "account", s.a.Name, "err", err)
	}
	return unreachable
}

// errGone reports that a message of the preview can no longer be edited.
var errGone = errors.New("message of the preview is gone")

// withRecover calls f, which handles a message. If f panics, the message counts as refused by the
// platform. Otherwise it would crash this process and each one after it.
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

// showPart shows the part of d with index n. It edits the preview's message with that index if
// there is one, and otherwise sends a new message.
func (s *sender) showPart(ctx context.Context, d *bus.Delivery, n int) (id string, err error) {
	planned := search(ctx, s, s.parts[n])
	part := bus.Part{Key: d.Key(n), To: s.to, Text: planned.text, Buttons: planned.buttons}
	if n == 0 {
		part.ReplyTo = d.Message.ReplyTo
	}
	if planned.file != nil {
		part.File = planned.open(s.r.files)
	}
	late := s.a.isLate(&s.shown, s.r.now())
	if s.shown.lost != "" && !s.shown.unsent && n == len(s.shown.ids) && part.File == nil &&
		len(part.Buttons) == 0 {
		return s.resendLost(ctx, part, late)
	}
	if n >= s.shown.usable {
		return s.send(ctx, part, d)
	}
	id = s.shown.ids[n]
	switch {
	case s.shown.texts[n] == part.Text:
		return id, nil
	case s.shown.texts[n] == "" && late:
		return "", errGone
	}
	err = s.a.editor.Edit(ctx, s.to, id, part.Text)
	switch {
	case errors.Is(err, channels.ErrRefused):
		return "", errGone
	case errors.Is(err, channels.ErrUncertain):
		return "", errors.New(err.Error()) // an edit can be repeated safely
	}
	if err == nil {
		s.shown.texts[n] = part.Text
	}
	return id, err
}

// send sends a part as a new message. If an earlier attempt may have sent it, and the platform may
// have forgotten the key since, send looks for that message first.
func (s *sender) send(
	ctx context.Context, part bus.Part, d *bus.Delivery,
) (id string, err error) {
	now := s.r.now()
	doubt := !s.uncertainSince.IsZero()
	if f := s.a.finder; f != nil && doubt && now.Sub(s.uncertainSince) >= f.KeyTime() {
		last, err := s.r.outbox.LastSent(s.r.db.Read(ctx), d)
		if err == nil {
			known := slices.Concat(d.IDs, s.shown.ids, last)
			id, err = f.Find(ctx, part, known, s.uncertainSince)
		}
		if err != nil || id != "" {
			return id, err
		}
	}
	if !s.a.deduplicates {
		if s.slot, err = s.a.window.enter(ctx); err != nil {
			return "", err
		}
	}
	id, err = s.a.Channel.Send(ctx, part)
	_, limited := errors.AsType[*channels.RateError](err)
	if err != nil && !limited && s.uncertainSince.IsZero() {
		s.uncertainSince = now
	}
	return id, err
}

// finish ends d after all its parts were sent.
func (s *sender) finish(ctx context.Context, d *bus.Delivery, start time.Time) (over bool) {
	if err := s.removeRest(ctx, d.IDs); err != nil {
		return s.failed(ctx, d, err)
	}
	d.State = bus.Sent
	if _, err := s.save(ctx, d); err != nil {
		return false
	}
	fault.Point("delivered")
	id := d.IDs[len(d.IDs)-1]
	if s.a.finisher != nil {
		s.a.finisher.Finish(ctx, s.to, d.IDs, d.Message.Answers)
	}
	s.a.marks.answered(s.to, d.Message.Answers, s.r.now())
	s.r.count(s.to.Account, func(s *Stats) { s.Sent.Add(1) })
	for _, l := range s.r.listeners {
		l.Delivered(d.Message)
	}
	// answers connects this log line with those of the received messages.
	s.r.log.InfoContext(ctx, "message sent", "to", s.to.String(), "id", id,
		"answers", d.Message.Answers, "took", s.r.now().Sub(start))
	return true
}

// removeRest removes the remaining messages of the preview if the answer is shorter. It returns an
// error only if it must be called again.
func (s *sender) removeRest(ctx context.Context, used []string) error {
	for _, id := range s.shown.ids {
		if s.a.remover == nil || slices.Contains(used, id) {
			continue
		}
		err := s.a.remover.Remove(ctx, s.to, id)
		if _, ok := errors.AsType[*channels.RateError](err); ok {
			return err
		}
		if err != nil && !errors.Is(err, channels.ErrRefused) {
			s.r.log.WarnContext(ctx, "rest of a preview could not be removed", "to", s.to.String(), "id", id,
				"err", err)
		}
	}
	return nil
}

// save stores the progress of d, and notices about it. ok is false if that failed and must be
// retried, or if a person has dropped d.
func (s *sender) save(
	ctx context.Context, d *bus.Delivery, notices ...bus.OutboundMessage,
) (ok bool, err error) {
	err = s.r.db.TxSoon(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		if s.crashed { // if a power loss undid its success, that would count as one more crash
			tx.WaitForDisk()
		}
		ok, err = s.r.outbox.Save(tx, d, s.r.now())
		if err == nil && ok {
			err = s.r.notices.put(tx, s.to, notices)
		}
		if err == nil {
			err = s.r.notices.saveLeave(tx, d, ok)
		}
		over := !ok || d.State == bus.Sent || d.State == bus.Dead || d.State == bus.Dropped
		if err == nil && over && d.Message.Stream != "" {
			err = s.r.outbox.ForgetPreview(tx, d.Message.Stream)
		}
		return err
	})
	if err != nil {
		s.r.log.ErrorContext(ctx, "outbox could not be written",
			"to", s.to.String(), "id", d.ID, "err", err)
		s.retryAt = s.r.now().Add(firstRetry)
		return false, err
	}
	if s.slot != nil {
		s.slot.saved()
	}
	s.freeSlot()
	return ok, nil
}

// freeSlot gives back the slot of a part that was sent.
func (s *sender) freeSlot() {
	if s.slot != nil {
		s.slot.free()
		s.slot = nil
	}
}

// failed records a failed attempt at d and sets the time of the next one. over reports that there
// will be none.
func (s *sender) failed(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	now := s.r.now()
	if !s.lastTry.IsZero() { // otherwise it was the first attempt since the start
		d.Tried += min(now.Sub(s.lastTry), s.lastWait+slackTime)
	}
	wait := time.Duration(0)
	d.State, d.Error, d.Crashes, s.sending = bus.Waiting, err.Error(), 0, false
	if limit, ok := errors.AsType[*channels.RateError](err); ok && limit.After > 0 {
		wait = limit.After
		s.a.pause(limit, s.to, now)
		s.recordReply(ctx)
	} else {
		if errors.Is(err, channels.ErrUncertain) {
			s.r.uncertain(ctx, d)
		}
		d.Attempts++
		wait = backoff(d.Attempts)
		s.retryAt = now.Add(wait)
		if errors.Is(err, channels.ErrRefused) {
			s.recordReply(ctx)
		} else if s.recordNoReply(ctx, err) {
			// The breaker decides who tries next. With few conversations, one must be ready for that.
			s.retryAt = now.Add(min(wait, lastProbe+probePoll))
		}
	}
	s.lastTry, s.lastWait = now, min(wait, maxCounted)
	if errors.Is(err, channels.ErrRefused) || d.Tried >= maxTried {
		return s.giveUp(ctx, d, err)
	}
	ok, failed := s.save(ctx, d)
	if failed != nil {
		return false
	}
	if !ok { // a person dropped it and needs no notice
		return true
	}
	s.r.log.WarnContext(ctx, "message not sent yet", "to", s.to.String(), "id", d.ID,
		"attempts", d.Attempts, "retry", wait, "err", err)
	return false
}

// giveUp makes d a dead letter because of err, removes the reactions from the messages that d
// answers, and tells people that no answer will come. over reports that this was stored.
func (s *sender) giveUp(ctx context.Context, d *bus.Delivery, err error) (over bool) {
	d.State, d.Error = bus.Dead, err.Error()
	var notices []bus.OutboundMessage
	pointless, failed := s.r.notices.isPointless(ctx, d)
	switch {
	case pointless:
		d.State = bus.Dropped
	case d.Message.Leave == nil && failed == nil:
		notices, failed = s.r.notices.forGivenUp(ctx, d)
	}
	if failed != nil {
		s.r.log.ErrorContext(ctx, "a message was given up, and nobody could be told",
			"to", s.to.String(), "id", d.ID, "err", failed)
	}
	ok, failed := s.save(ctx, d, notices...)
	if failed != nil || !ok {
		return failed == nil
	}
	s.a.marks.answered(s.to, d.Message.Answers, s.r.now())
	if d.State == bus.Dead {
		s.r.count(s.to.Account, func(s *Stats) { s.Dead.Add(1) })
		s.r.log.ErrorContext(ctx, "message given up: see gateway outbox list",
			"to", s.to.String(), "id", d.ID, "err", err)
	} else {
		s.r.log.WarnContext(ctx, "message dropped: it is a notice, or its group was left",
			"to", s.to.String(), "id", d.ID, "err", err)
	}
	return true
}

// backoff returns how long to wait after a number of failed attempts. The time doubles with each
// attempt and varies by a quarter, so that chats that failed together are not retried together.
func backoff(attempts int) time.Duration {
	d := min(firstRetry<<min(attempts-1, 20), lastRetry)
	return d*3/4 + rand.N(d/2)
}
