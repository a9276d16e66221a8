// Package bell lets tests wait for what becomes of a fake, instead of asking it again and again.
//
// The main type is [Bell]. It is a package of its own, without package testing, as the fakes are
// also used by programs.
package bell

import (
	"context"
	"sync"
)

// A Bell is rung at each change of somebody's state, and wakes those who wait for one. The zero
// value is ready for use.
type Bell struct {
	mu   sync.Mutex
	next chan struct{} // closed when the bell is rung; nil if nobody waits
}

// Ring wakes those who wait. The caller may hold the lock of what has changed.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Wait returns nil once cond reports true and ctx's error if that ends first. It calls cond at
// once and each time that the bell was rung.
func (b *Bell) Wait(ctx context.Context, cond func() bool) error {
	for {
		next := b.listen()
		if cond() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listen returns a channel that is closed when the bell is rung.
func (b *Bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}
