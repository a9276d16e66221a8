package hooks

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxReading is the maximum number of posts of a hook that are read or stored at once.
const maxReading = 32

// A places limits the concurrent posts of a hook. If the hook authenticates the body, anybody can
// begin a post and never finish it. Then a new post evicts the one that has been read for the
// longest time.
type places struct {
	taken chan struct{}

	mu      sync.Mutex
	reading []*reading // oldest first
}

// A reading is a post whose body is being read.
type reading struct {
	stop   func() // interrupts reading the body
	gaveUp bool   // the post was evicted
}

func newPlaces() places { return places{taken: make(chan struct{}, maxReading)} }

// enter waits for a place. The caller gives it back with [places.leave].
func (h *Handler) enter(ctx context.Context, e *entry) error {
	select {
	case e.places.taken <- struct{}{}:
		return nil
	default:
	}
	if !e.isBearer() {
		e.places.evict()
	}
	timer := time.NewTimer(h.opts.Patience)
	defer timer.Stop()
	select {
	case e.places.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return h.crowded()
	}
}

// crowded returns the refusal of a post that got no place.
func (h *Handler) crowded() error {
	return &refusal{http.StatusServiceUnavailable, Limited, "too many posts are under way",
		h.opts.Patience}
}

func (p *places) leave() { <-p.taken }

// begin registers a post whose body is being read; stop interrupts reading. The caller calls done
// when reading has ended. done reports whether the post was evicted. stop is not called after
// done.
func (p *places) begin(stop func()) (done func() (gaveUp bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &reading{stop: stop}
	p.reading = append(p.reading, r)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reading = slices.DeleteFunc(p.reading, func(other *reading) bool { return other == r })
		return r.gaveUp
	}
}

// evict interrupts the post whose body has been read for the longest time, if any.
func (p *places) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.reading) == 0 {
		return
	}
	r := p.reading[0]
	p.reading = p.reading[1:]
	r.gaveUp = true
	r.stop()
}
