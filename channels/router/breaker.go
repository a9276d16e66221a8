package router

import (
	"time"

	"gateway/bus"
)

// When an account's platform is taken to be out of reach.
const (
	// breakAfter is how many conversations must fail one after another, with no success between.
	breakAfter = 5
	// lastProbe is the longest time between two probes. It is how long an outage seems to last
	// after its end.
	lastProbe = time.Minute
	// probeLook is how soon the others look again while a probe takes its time.
	probeLook = 5 * time.Second
)

// A breaker keeps an account's conversations from trying, each by itself, what fails for all: while
// the platform can't be reached one of them tries at a time, a different one each time. It is
// guarded by its account's mu.
type breaker struct {
	failed  map[bus.Address]bool // since something succeeded
	open    bool
	probing *chat
	next    time.Time     // when the next probe may be
	wait    time.Duration // from the last probe until then
}

// admit returns how long c must wait before it may try something. If that is 0 and the platform
// can't be reached, c is the probe until leave.
func (b *breaker) admit(c *chat, now time.Time) time.Duration {
	switch {
	case !b.open || b.probing == c:
		return 0
	case b.probing != nil:
		return probeLook
	case b.next.After(now):
		return b.next.Sub(now)
	}
	b.probing = c
	return 0
}

// leave notes that c tries nothing for now.
func (b *breaker) leave(c *chat) {
	if b.probing == c {
		b.probing = nil
	}
}

// fail notes that c has not reached the platform. It reports whether that opens b.
func (b *breaker) fail(c *chat, now time.Time) (opened bool) {
	if b.open {
		if b.probing == c {
			b.wait = min(2*b.wait, lastProbe)
			b.next = now.Add(b.wait)
		}
		return false
	}
	if b.failed == nil {
		b.failed = make(map[bus.Address]bool)
	}
	b.failed[c.to] = true
	if len(b.failed) < breakAfter {
		return false
	}
	b.open, b.wait = true, firstRetry
	b.next = now.Add(b.wait)
	return true
}

// reach notes that the platform has answered. It reports whether that closes b.
func (b *breaker) reach() (closed bool) {
	closed = b.open
	*b = breaker{}
	return closed
}

// When a delivery is taken to be what ends the process.
const (
	// suspectAfter is how many tries that ended with the process make a delivery a suspect. No
	// other suspect is tried at the same time, so that only what ends the process by itself is
	// given up.
	suspectAfter = 2
	// maxCrashes is with how many of them it is given up.
	maxCrashes = 3
	// suspectTime is how long all others wait at the start for suspects.
	suspectTime = 10 * time.Second
)

// A suspects says which delivery that may end the process is tried now. It is guarded by the
// router's mu.
type suspects struct {
	trying *chat
	left   int       // that nobody has tried since the start
	until  time.Time // all others wait for them
}

// expect notes how many there are at the start.
func (s *suspects) expect(n int, now time.Time) { s.left, s.until = n, now.Add(suspectTime) }

// admit returns how long c must wait before it may try d.
func (s *suspects) admit(c *chat, d *bus.Delivery, now time.Time) time.Duration {
	switch {
	case d.Crashes >= suspectAfter && (s.trying == nil || s.trying == c):
		s.trying = c
		return 0
	case d.Crashes >= suspectAfter:
		return firstRetry
	case s.left > 0:
		return max(s.until.Sub(now), 0)
	}
	return 0
}

// leave notes that c tries nothing for now. It reports whether the others need not wait any more.
func (s *suspects) leave(c *chat) bool {
	if s.trying != c {
		return false
	}
	s.trying = nil
	s.left = max(s.left-1, 0)
	return s.left == 0
}
