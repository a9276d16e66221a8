// Package notifier lets tests wait for a state of a fake instead of polling it.
//
// The main type is [Notifier]. The package does not import testing, because programs use the fakes,
// too.
package notifier

import (
	"context"
	"sync"
)

// A Notifier wakes goroutines that wait for a change. The zero value is ready for use.
type Notifier struct {
	mu   sync.Mutex
	next chan struct{} // closed by Notify; nil if nobody waits
}

// Notify wakes all waiting goroutines. The caller may hold the lock of the changed state.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Wait waits until cond returns true, and returns nil, or ctx's error if ctx is done first. It
// calls cond immediately and after each Notify.
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

// listen returns a channel that Notify closes.
func (n *Notifier) listen() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}
