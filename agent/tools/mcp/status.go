package mcp

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// patience is how many consecutive failures a call waits for. If a server has failed more often,
// the call fails after the next attempt.
const patience = 2

// A status is the state of a server and its present link. The server's goroutine sets it; calls
// wait in it for the link.
type status struct {
	idle    time.Duration // how long the link of a process may be unused
	process bool          // the server is a process
	now     func() time.Time
	wanted  chan struct{} // a call waits for a connection

	mu      sync.Mutex
	state   State
	link    *link         // or nil
	change  chan struct{} // closed and replaced whenever a field here changes
	failed  int           // consecutive failed attempts and connections
	tries   int           // finished attempts to connect
	busy    int           // calls that use the link or wait for it
	used    time.Time
	dialect dialect
	ended   bool // the server's goroutine has returned
}

func newStatus(s Server, o *Options) *status {
	return &status{
		idle: o.Idle, process: s.URL == "", now: o.Now, wanted: make(chan struct{}, 1),
		state:  State{Name: s.Name, State: Starting},
		change: make(chan struct{}),
	}
}

// update calls change with the lock held and wakes those who wait for changes.
func (s *status) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.change)
	s.change = make(chan struct{})
}

// set sets the state. It must be called within update. In the state Starting, the previous
// error stays visible.
func (s *status) set(state, problem string) {
	s.state.State = state
	if state != Starting {
		s.state.Error = problem
	}
}

// show returns a copy of the state, for people.
func (s *status) show() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Refused = append([]string(nil), state.Refused...)
	state.Held = append([]string(nil), state.Held...)
	return state
}

// acquire waits for the link and returns it. The caller must call release after use.
func (s *status) acquire(ctx context.Context) (l *link, release func(), err error) {
	s.mu.Lock()
	s.busy++ // from now on, so that the new link does not count as unused
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	// The call does not give up before the end of at least one more attempt.
	tries := s.tries
	for {
		switch {
		case s.link != nil && s.link.alive():
			l := s.link
			s.mu.Unlock()
			return l, s.release, nil
		case s.ended:
			s.mu.Unlock()
			return nil, nil, fmt.Errorf("the MCP server %s is stopped; nothing was done", s.state.Name)
		case s.tries > tries && s.failed > patience && s.state.State == Waiting:
			// An attempt has failed while the call waited, after several others: the next one is
			// too far away.
			why := s.state.Error
			s.mu.Unlock()
			return nil, nil, s.unavailable(why)
		}
		// The lock must not be held while waiting. update closes this channel even if it runs
		// before the select.
		change := s.change
		s.mu.Unlock()
		notify(s.wanted)
		select {
		case <-change:
		case <-ctx.Done():
			return nil, nil, s.unavailable(cmp.Or(s.show().Error, "it is still starting"))
		}
		s.mu.Lock()
	}
}

// unavailable returns the error of a call that got no link.
func (s *status) unavailable(why string) error {
	return fmt.Errorf("the MCP server %s is not connected: %s; nothing was done", s.state.Name, why)
}

// release ends the use of the link, or the wait for it. The idle time begins anew.
func (s *status) release() {
	s.update(func() {
		s.busy--
		s.used = s.now()
	})
}

// rest returns how long the link may stay unused. If the time is over, it removes the link of a
// process, so that no call uses it.
func (s *status) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.idle - s.now().Sub(s.used)
	if s.busy > 0 {
		left = s.idle
	}
	if left <= 0 && s.process {
		s.link = nil
		select {
		case <-s.wanted: // from a call that already got its link
		default:
		}
	}
	return left
}
