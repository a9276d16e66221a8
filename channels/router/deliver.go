package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/channels"
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
	w  *worker
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
	permit         *permit       // of the last attempt; nil if that needed none
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
		if wait := s.w.display.stopPreviews(ctx, d.Message.Stops); wait > 0 {
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
	s.uncertainSince, s.permit = time.Time{}, nil
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
		s.shown = s.w.display.claimPreview(stream)
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
		if wait := s.w.behind(ctx, d.ID); wait > 0 {
			return wait
		}
	}
	if wait := s.admit(d, now); wait > 0 {
		return wait
	}
	if !s.sendsNew(d) {
		return s.a.wait(s.to, now)
	}
	wait := s.a.reserve(&s.w.reservation, s.to, limits, now)
	s.reserved = wait == 0
	return wait
}

// sendsNew reports whether the next attempt at d will probably send a new message.
func (s *sender) sendsNew(d *bus.Delivery) bool {
	return len(d.IDs) >= s.shown.usable
}

// admit returns how long d must wait for other conversations: while its platform is unreachable, or
// while a suspect is tried.
func (s *sender) admit(d *bus.Delivery, now time.Time) time.Duration {
	s.r.mu.Lock()
	wait := s.r.suspects.admit(s.w, d, now)
	s.r.mu.Unlock()
	if wait > 0 {
		return wait
	}
	return s.a.admit(s.w, now)
}

// release ends what admit has begun.
func (s *sender) release() {
	s.permit.free() // a part that could not be saved must not delay other conversations
	s.a.release(s.w)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.suspects.release(s.w) {
		for _, other := range s.r.workers {
			other.wake.Ring()
		}
	}
}

// try makes the next attempt at d. over reports that d needs no further one.
func (s *sender) try(
	ctx context.Context, d *bus.Delivery, limits channels.Limits,
) (over bool) {
	if d.Message.Leave != nil {
		return leaveGroup(ctx, s, d)
	}
	start := s.r.now()
	if ready, over := s.prepare(ctx, d, limits); !ready {
		return over
	}
	n := len(d.IDs)
	if n >= len(s.parts) { // all parts are sent, but that is not stored yet
		return s.finish(ctx, d, start)
	}
	id, err := s.attempt(ctx, d, n)
	switch {
	case errors.Is(err, errGone):
		s.shown.dropFrom(n)
		return false
	case replaceFile(s.parts, n, err, limits):
		s.r.log.WarnContext(ctx, "file refused; a text replaces it", "to", s.to.String(), "err", err)
		s.w.recordReply(ctx)
		s.permit.free()
		return false
	case err != nil:
		return s.failed(ctx, d, err)
	}
	s.recordSent(ctx, d, id)
	if n+1 < len(s.parts) { // store it now: the next part may have to wait long
		ok, err := s.markSending(ctx, d)
		return !ok && err == nil
	}
	return s.finish(ctx, d, start)
}

// prepare splits d and marks it in the table, unless that was done. The mark comes before the
// attempt, so that the next process knows which delivery crashed this one. If ready is false, try
// makes no attempt and returns over.
func (s *sender) prepare(
	ctx context.Context, d *bus.Delivery, limits channels.Limits,
) (ready, over bool) {
	mark := func() (ok, over bool) {
		if s.sending || s.planned && len(d.IDs) >= len(s.parts) {
			return true, false
		}
		ok, err := s.markSending(ctx, d)
		return ok, !ok && err == nil
	}
	if ok, over := mark(); !ok { // splitting can crash the process, too
		return false, over
	}
	if s.planned {
		return true, false
	}
	if err := s.split(ctx, d, limits); err != nil {
		return false, s.failed(ctx, d, err)
	}
	if s.sendsNew(d) && !s.reserved {
		return false, false
	}
	return mark() // again if the split must be stored
}

// split plans the parts of d.
func (s *sender) split(ctx context.Context, d *bus.Delivery, limits channels.Limits) error {
	known := len(d.Parts)
	if s.searched = s.r.secrets.Load(); known > 0 {
		s.searched = nil
	}
	err := s.w.withRecover(ctx, func() error {
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
