package router

import (
	"time"

	"gateway/bus"
)

// When the router considers the platform of an account to be out of reach.
const (
	// breakAfter is how many conversations must fail without any success in between.
	breakAfter = 5
	// lastProbe is the longest time between two probes, and so the longest time until the end of an
	// outage is noticed.
	lastProbe = time.Minute
	// probePoll is how often the others check whether a running probe has ended.
	probePoll = 5 * time.Second
)

// A breaker is the circuit breaker of an account. While the platform can't be reached, one
// conversation tries at a time, a different one each time, and the others wait. It is guarded by
// account.mu.
type breaker struct {
	failing map[bus.Address]bool // conversations that failed since the last success
	open    bool
	probing *conversation
	next    time.Time     // when the next probe may begin
	wait    time.Duration // between the last probe and the next
}

// admit returns how long c must wait before its next try. If that is 0 and the breaker is open, c
// is the probe until release.
func (b *breaker) admit(c *conversation, now time.Time) time.Duration {
	switch {
	case !b.open || b.probing == c:
		return 0
	case b.probing != nil:
		return probePoll
	case b.next.After(now):
		return b.next.Sub(now)
	}
	b.probing = c
	return 0
}

// release notes that c is not trying at the moment.
func (b *breaker) release(c *conversation) {
	if b.probing == c {
		b.probing = nil
	}
}

// failed notes that c did not reach the platform. It reports whether that opens b.
func (b *breaker) failed(c *conversation, now time.Time) (opened bool) {
	if b.open {
		if b.probing == c {
			b.wait = min(2*b.wait, lastProbe)
			b.next = now.Add(b.wait)
		}
		return false
	}
	if b.failing == nil {
		b.failing = make(map[bus.Address]bool)
	}
	b.failing[c.to] = true
	if len(b.failing) < breakAfter {
		return false
	}
	b.open, b.wait = true, firstRetry
	b.next = now.Add(b.wait)
	return true
}

// reached notes that the platform has answered. It reports whether that closes b.
func (b *breaker) reached() (closed bool) {
	closed = b.open
	*b = breaker{}
	return closed
}

// When the router suspects a delivery of ending the process.
const (
	// suspectAfter is how many crashes of the process during tries make a delivery a suspect.
	// Suspects are tried one at a time, so that only a delivery that itself ends the process is
	// given up.
	suspectAfter = 2
	// maxCrashes is after how many such crashes a delivery is given up.
	maxCrashes = 3
	// suspectTime is how long all other deliveries wait at the start for the suspects.
	suspectTime = 10 * time.Second
)

// suspects make sure that deliveries which may end the process are tried alone. It is guarded by
// Router.mu.
type suspects struct {
	trying  *conversation
	untried int       // suspects that were not tried since the start
	until   time.Time // how long the others wait for them
}

// start notes how many suspects there are at the start.
func (s *suspects) start(n int, now time.Time) { s.untried, s.until = n, now.Add(suspectTime) }

// admit returns how long c must wait before it may try d.
func (s *suspects) admit(c *conversation, d *bus.Delivery, now time.Time) time.Duration {
	switch {
	case d.Crashes >= suspectAfter && (s.trying == nil || s.trying == c):
		s.trying = c
		return 0
	case d.Crashes >= suspectAfter:
		return firstRetry
	case s.untried > 0:
		return max(s.until.Sub(now), 0)
	}
	return 0
}

// release notes that c is not trying at the moment. It reports whether the others need not wait any
// more.
func (s *suspects) release(c *conversation) bool {
	if s.trying != c {
		return false
	}
	s.trying = nil
	s.untried = max(s.untried-1, 0)
	return s.untried == 0
}
