package router

import (
	"context"
	"slices"
	"sync"
	"time"

	"gateway/bus"
)

// maxUnrecorded is the maximum number of an account's new messages that the platform may have while
// neither the sent log nor the table records them. After a kill -9 they are sent twice if the
// platform has no idempotency keys.
const maxUnrecorded = 5

// slowCall is the duration after which a call makes room for another one, so that a slow platform
// or a large upload delays nobody. The limit allows at least a hundred calls per second; Telegram
// allows thirty messages per second.
const slowCall = 50 * time.Millisecond

// lateTimer is the delay of a timer that shows that this machine is slow, not the platform.
const lateTimer = 10 * time.Millisecond

// A window limits an account's messages that are under way or not yet recorded as sent. The zero
// value is ready for use. Its methods are safe for concurrent use.
type window struct {
	sentLog *bus.SentLog // or nil

	mu      sync.Mutex
	used    int // calls that are not slow, and answers that neither the log nor the table has
	waiting []*permit
}

// A permit is the right to send one message. Its methods do nothing if it is nil: no permit was
// needed.
type permit struct {
	w        *window
	turn     chan struct{} // closed when the permit may be used
	endEntry func()        // ends the entry in the sent log; nil if there is none

	// Guarded by w.mu:
	timer    *time.Timer
	due      time.Time // of the timer
	counted  bool      // included in used
	answered bool
}

// enter returns a permit as soon as there is room.
func (w *window) enter(ctx context.Context) (*permit, error) {
	p := &permit{w: w, turn: make(chan struct{})}
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
	p.timer = time.AfterFunc(slowCall, p.yield)
	return p, nil
}

// admit admits waiting permits as long as there is room. w.mu is held.
func (w *window) admit() {
	for len(w.waiting) > 0 && w.used < maxUnrecorded {
		p := w.waiting[0]
		w.waiting = w.waiting[1:]
		p.count(true)
		close(p.turn)
	}
}

// count adds p to used or removes it. p.w.mu is held.
func (p *permit) count(counted bool) {
	switch {
	case counted && !p.counted:
		p.w.used++
	case !counted && p.counted:
		p.w.used--
	}
	p.counted = counted
}

// yield makes room for another call because this one takes long.
func (p *permit) yield() {
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

// answer records that the call has ended.
func (p *permit) answer() {
	if p == nil {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.timer.Stop()
	p.answered = true
	p.count(true)
}

// record records in the sent log that the platform has accepted the next part of d under the given
// id, and makes room for another call. Without a log, or if it is full, there is room only when the
// table has the id.
func (p *permit) record(d *bus.Delivery, id string) {
	if p == nil || p.w.sentLog == nil {
		return
	}
	end, err := p.w.sentLog.Record(d, id)
	if err == nil {
		p.endEntry = end
		p.free()
	}
}

// saved records that the table has the outcome of the call. Without saved, the entry stays in the
// sent log, for the next process.
func (p *permit) saved() {
	if p != nil && p.endEntry != nil {
		p.endEntry()
		p.endEntry = nil
	}
}

// free gives the permit back after the outcome of the call was recorded.
func (p *permit) free() {
	if p == nil {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.count(false)
	p.w.admit()
}

// giveUp stops waiting for the permit.
func (p *permit) giveUp() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.waiting = slices.DeleteFunc(p.w.waiting, func(other *permit) bool { return other == p })
	p.count(false) // it may just have been admitted
	p.w.admit()
}
