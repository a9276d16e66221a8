package router

import (
	"context"
	"time"

	"gateway/bus"
)

// When the router considers the platform of an account unreachable.
const (
	// breakAfter is the number of conversations that must fail without any success in between.
	breakAfter = 5
	// lastProbe is the longest time between two probes, so it is also the longest time until the
	// end of an outage is noticed.
	lastProbe = time.Minute
	// probePoll is how often the other conversations check whether a running probe has ended.
	probePoll = 5 * time.Second
)

// A breaker is the circuit breaker of an account. While the platform is unreachable, one
// conversation at a time probes it, each time a different one, and the others wait. account.mu
// guards it.
type breaker struct {
	failing map[bus.Address]bool // conversations that have failed since the last success
	open    bool
	probing *worker
	next    time.Time     // when the next probe may begin
	wait    time.Duration // from the last probe to the next
	outages int           // how often b was closed again
}

// admit returns how long w must wait before its next attempt. If it returns 0 and the breaker is
// open, w is the probe until release.
func (b *breaker) admit(w *worker, now time.Time) time.Duration {
	switch {
	case !b.open || b.probing == w:
		return 0
	case b.probing != nil:
		return probePoll
	case b.next.After(now):
		return b.next.Sub(now)
	}
	b.probing = w
	return 0
}

// release records that w is not attempting a delivery any more.
func (b *breaker) release(w *worker) {
	if b.probing == w {
		b.probing = nil
	}
}

// failed records that w did not reach the platform. It reports whether that opens b.
func (b *breaker) failed(w *worker, now time.Time) (opened bool) {
	if b.open {
		if b.probing == w {
			b.wait = min(2*b.wait, lastProbe)
			b.next = now.Add(b.wait)
		}
		return false
	}
	if b.failing == nil {
		b.failing = make(map[bus.Address]bool)
	}
	b.failing[w.to] = true
	if len(b.failing) < breakAfter {
		return false
	}
	b.open, b.wait = true, firstRetry
	b.next = now.Add(b.wait)
	return true
}

// reached records that the platform has answered. It reports whether that closes b.
func (b *breaker) reached() (closed bool) {
	closed = b.open
	*b = breaker{outages: b.outages}
	if closed {
		b.outages++
	}
	return closed
}

// When the router suspects that a delivery crashes the process.
const (
	// suspectAfter is the number of crashes during attempts that makes a delivery a suspect.
	// Suspects are tried one at a time, so that only a delivery that itself crashes the process is
	// given up.
	suspectAfter = 2
	// maxCrashes is the number of such crashes after which a delivery is given up.
	maxCrashes = 3
	// suspectTime is how long all other deliveries wait for the suspects after the start.
	suspectTime = 10 * time.Second
)

// suspects makes sure that deliveries that may crash the process are tried alone. Router.mu guards
// it.
type suspects struct {
	trying  *worker
	untried int       // suspects not tried since the start
	until   time.Time // end of the others' wait
}

// start records the number of suspects at the start.
func (s *suspects) start(n int, now time.Time) { s.untried, s.until = n, now.Add(suspectTime) }

// admit returns how long w must wait before it may try d.
func (s *suspects) admit(w *worker, d *bus.Delivery, now time.Time) time.Duration {
	switch {
	case d.Crashes >= suspectAfter && (s.trying == nil || s.trying == w):
		s.trying = w
		return 0
	case d.Crashes >= suspectAfter:
		return firstRetry
	case s.untried > 0:
		return max(s.until.Sub(now), 0)
	}
	return 0
}

// release records that w is not attempting a delivery any more. It reports whether that ends the
// wait of the others. It reports that once, because each report wakes w, too.
func (s *suspects) release(w *worker) bool {
	if s.trying != w {
		return false
	}
	s.trying = nil
	if s.untried == 0 {
		return false
	}
	s.untried--
	return s.untried == 0
}

// recordReply records that the platform has answered, and wakes the conversations that waited for
// that.
func (w *worker) recordReply(ctx context.Context) {
	w.a.mu.Lock()
	closed := w.a.breaker.reached()
	w.a.mu.Unlock()
	if !closed {
		return
	}
	w.r.log.InfoContext(ctx, "platform is reachable again", "account", w.a.Name)
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	for _, other := range w.r.workers {
		if other.a == w.a {
			other.wake.Ring()
		}
	}
}

// recordNoReply records that the platform did not answer. It reports whether the platform counts
// as unreachable.
func (w *worker) recordNoReply(ctx context.Context, err error) (unreachable bool) {
	w.a.mu.Lock()
	opened := w.a.breaker.failed(w, w.r.now())
	unreachable = w.a.breaker.open
	w.a.mu.Unlock()
	if opened {
		w.r.log.WarnContext(ctx, "platform is unreachable: one conversation at a time tries, "+
			"the others wait", "account", w.a.Name, "err", err)
	}
	return unreachable
}
