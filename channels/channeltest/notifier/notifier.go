// Package notifier lets tests wait for a state of a fake instead of polling it.
//
// The main type is [Notifier]. The package does not import testing, because programs use the fakes,
// too.
package notifier

import (
	"context"
	"sync"
)

// A Notifier wakes those who wait for a change of some state. The zero value is ready for use.
type Notifier struct {
	mu   sync.Mutex
	next chan struct{} // closed when Notify is called; nil if nobody waits
}

// Notify wakes those who wait. The caller may hold the lock of what has changed.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Wait returns nil once cond reports true and ctx's error if that ends first. It calls cond at
// once and each time that Notify was called.
func (n *Notifier) Wait(ctx context.Context, cond func() bool) error {
	for {
		next := n.listen()
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

// listen returns a channel that is closed when Notify is called.
func (n *Notifier) listen() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}
