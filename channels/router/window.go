package router

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxUnnoted bounds how many new messages of an account the platform may have while the table does
// not say so yet. After a kill -9 they come twice if the platform has no idempotency keys.
const maxUnnoted = 5

// slowCall is after which time a call makes room for another, so that a slow platform or the upload
// of a large file holds up nobody: the bound lets a hundred calls begin in a second at least, and
// Telegram allows thirty messages in a second.
const slowCall = 50 * time.Millisecond

// lateTimer is by how much a timer is late if it is this machine that is slow, not the platform.
const lateTimer = 10 * time.Millisecond

// A window bounds the messages of an account that are on their way or not yet noted as sent. The
// zero value is ready for use. It is used concurrently.
type window struct {
	mu      sync.Mutex
	used    int // calls that are not slow, and answers that are not noted
	waiting []*pass
}

// A pass is the right to send one message.
type pass struct {
	w    *window
	turn chan struct{} // closed when it may be used

	// Guarded by w.mu:
	timer    *time.Timer
	due      time.Time // of the timer
	counted  bool      // in used
	answered bool
}

// enter returns a pass once there is room.
func (w *window) enter(ctx context.Context) (*pass, error) {
	p := &pass{w: w, turn: make(chan struct{})}
	w.mu.Lock()
	w.waiting = append(w.waiting, p)
	w.admit()
	w.mu.Unlock()
	select {
	case <-p.turn:
	case <-ctx.Done():
		p.giveUp()
		return nil, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.due = time.Now().Add(slowCall)
	p.timer = time.AfterFunc(slowCall, p.beSlow)
	return p, nil
}

// admit lets those in for whom there is room. w.mu is held.
func (w *window) admit() {
	for len(w.waiting) > 0 && w.used < maxUnnoted {
		p := w.waiting[0]
		w.waiting = w.waiting[1:]
		p.count(true)
		close(p.turn)
	}
}

// count counts p in used, or not. p.w.mu is held.
func (p *pass) count(counted bool) {
	switch {
	case counted && !p.counted:
		p.w.used++
	case !counted && p.counted:
		p.w.used--
	}
	p.counted = counted
}

// beSlow makes room for another call, because this one takes long.
func (p *pass) beSlow() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.answered {
		return
	}
	if now := time.Now(); now.Sub(p.due) > lateTimer {
		p.due = now.Add(slowCall)
		p.timer.Reset(slowCall)
		return
	}
	p.count(false)
	p.w.admit()
}

// answer says that the call has ended.
func (p *pass) answer() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.timer.Stop()
	p.answered = true
	p.count(true)
}

// leave gives the pass back, once the outcome of the call is noted.
func (p *pass) leave() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.count(false)
	p.w.admit()
}

// giveUp ends the wait for a turn.
func (p *pass) giveUp() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.waiting = slices.DeleteFunc(p.w.waiting, func(other *pass) bool { return other == p })
	p.count(false) // its turn may have come meanwhile
	p.w.admit()
}
