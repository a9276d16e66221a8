package hooks

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxReading is how many posts of a hook are read or stored at once.
const maxReading = 32

// A places bounds how many posts of a hook are under way. Anybody can begin a post whose body is
// the proof, and leave it half sent: such a one gives way to the next.
type places struct {
	taken chan struct{}

	mu      sync.Mutex
	reading []*reading // the one that began first comes first
}

// A reading is a post whose body is awaited.
type reading struct {
	stop   func() // makes the reader of the body return
	gaveUp bool   // its place is wanted for another
}

func newPlaces() places { return places{taken: make(chan struct{}, maxReading)} }

// enter waits for a place, which [places.leave] gives back.
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

// crowded is the answer to a post for which there is no room.
func (h *Handler) crowded() error {
	return &refusal{http.StatusServiceUnavailable, Limited, "too many posts are under way",
		h.opts.Patience}
}

func (p *places) leave() { <-p.taken }

// begin notes that a body is awaited, which stop ends. Done must be called once it is there, or is
// not; it reports whether the post has to give up its place. Stop is not called after that.
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

// evict ends the post whose body has been awaited for longest, if there is one.
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
