package whatsapp

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errOffline reports that there is no connection for sending.
var errOffline = errors.New("not connected to WhatsApp")

// A current holds the session of a connected Run, for those who send. Its methods are safe for
// concurrent use.
type current struct {
	mu      sync.Mutex
	session *session      // or nil
	ended   bool          // no session will come, because Run has ended
	changed chan struct{} // closed when session or ended changes
}

func newCurrent() *current { return &current{changed: make(chan struct{})} }

// set sets the session; nil: none.
func (c *current) set(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s {
		c.session = s
		c.notify()
	}
}

// drop removes s, unless another session has replaced it.
func (c *current) drop(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
		c.notify()
	}
}

// setEnded records whether no further session will come.
func (c *current) setEnded(ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = ended
	c.notify()
}

// notify wakes those who wait. The caller holds c.mu.
func (c *current) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait returns the session. If there is none but one may come, it waits for it, up to limit.
func (c *current) wait(ctx context.Context, limit time.Duration) (*session, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		s, ended, changed := c.session, c.ended, c.changed
		c.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case ended:
			return nil, errOffline
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, errOffline
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
