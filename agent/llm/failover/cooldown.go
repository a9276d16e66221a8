package failover

import (
	"sync"
	"time"

	"gateway/agent/llm"
)

// span is the duration of a cool-down: least the first time, then doubling up to most.
type span struct{ least, most time.Duration }

// spanOf returns the span for a kind of error. It returns false for errors that the
// conversation causes, not the model.
func spanOf(kind llm.Kind) (span, bool) {
	switch kind {
	case llm.RateLimited:
		return span{30 * time.Second, 30 * time.Minute}, true
	case llm.OutOfQuota:
		return span{time.Hour, 24 * time.Hour}, true
	case llm.Overloaded, llm.Unavailable, llm.TimedOut:
		return span{30 * time.Second, 5 * time.Minute}, true
	case llm.Unauthorized, llm.Forbidden, llm.NotFound:
		return span{5 * time.Minute, time.Hour}, true
	}
	return span{}, false
}

// A link is a model of a chain with its state.
type link struct {
	Entry

	mu    sync.Mutex
	cools map[llm.Kind]cool // by cause
}

// cool is the current cool-down of a link, or the last one.
type cool struct {
	length time.Duration
	until  time.Time
}

// cooling returns the remaining time of the model's cool-down, 0 if there is none.
func (l *link) cooling(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := time.Duration(0)
	for _, c := range l.cools {
		left = max(left, c.until.Sub(now))
	}
	return left
}

// ready returns the links that are not cooling down, and the one whose cool-down ends first, or
// nil.
func ready(links []*link, now time.Time) (list []*link, soonest *link) {
	least := time.Duration(0)
	for _, l := range links {
		switch left := l.cooling(now); {
		case left == 0:
			list = append(list, l)
		case soonest == nil || left < least:
			soonest, least = l, left
		}
	}
	return list, soonest
}

// failed starts a cool-down and returns its duration, 0 for none. A longer wait that the
// provider asked for takes precedence. Concurrent failures count as one: a cool-down is
// not prolonged while it lasts.
func (l *link) failed(kind llm.Kind, after time.Duration, now time.Time) time.Duration {
	s, ok := spanOf(kind)
	if !ok {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cools[kind]
	if !now.Before(c.until) {
		c.length = min(max(s.least, 2*c.length), s.most)
		c.until = now.Add(c.length)
	}
	if asked := now.Add(after); asked.After(c.until) {
		c.until = asked
	}
	if l.cools == nil {
		l.cools = make(map[llm.Kind]cool)
	}
	l.cools[kind] = c
	return c.until.Sub(now)
}

// reset ends all cool-downs, after a success.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.cools)
}
