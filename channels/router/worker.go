package router

import (
	"context"
	"slices"
	"time"

	"gateway/bus"
	"gateway/channels"
)

// A worker delivers the queued messages of one conversation in order. While none is queued, it
// shows the growing answer.
type worker struct {
	r    *Router
	a    *account
	to   bus.Address
	wake bus.Signal // makes the worker check the fields

	// Guarded by r.mu:
	first   *bus.Delivery  // the oldest delivery; nil: unknown
	more    bool           // the table may have further ones
	check   bool           // a person may have dropped first
	loading bool           // the table is being read
	counted bool           // it is counted in a.loaded
	updates []bus.Progress // newest progress of each stream, not applied yet

	// Used by the worker only:
	reservation reservation // for the next new message
	sender      sender
	display     display
}

// update gives w the newest progress of an answer. r.mu is held.
func (w *worker) update(p bus.Progress) {
	same := func(other bus.Progress) bool { return other.Stream == p.Stream }
	if i := slices.IndexFunc(w.updates, same); i >= 0 {
		w.updates[i] = p
	} else {
		w.updates = append(w.updates, p)
	}
	w.wake.Ring()
}

// assign gives w its next delivery. r.mu is held.
func (w *worker) assign(d *bus.Delivery) {
	w.first = d
	w.count()
	w.wake.Ring()
}

// expectMore makes w read the table for further deliveries. r.mu is held.
func (w *worker) expectMore() {
	w.more = true
	w.count()
	w.wake.Ring()
}

// isIdle reports whether nothing waits to be sent by w. r.mu is held.
func (w *worker) isIdle() bool { return w.first == nil && !w.more && !w.loading }

// count adds w to the conversations for which something waits. r.mu is held.
func (w *worker) count() {
	if !w.counted {
		w.counted = true
		w.a.loaded++
	}
}

// end removes w from the workers. r.mu is held.
func (w *worker) end() {
	w.display.keepPreview()
	delete(w.r.workers, w.to)
	if !w.counted {
		return
	}
	w.a.loaded--
	if w.a.backlog.pending {
		w.r.freed.Ring()
	}
}

// run works until nothing is left to deliver or to show. Once ctx is done it delivers only messages
// that need not wait. If messages are left, w stays registered as the conversation's worker, so
// that no later message overtakes them.
func (w *worker) run(ctx, work context.Context) {
	for {
		d, ok := w.next(work, ctx.Err() != nil)
		if !ok {
			return
		}
		var wait time.Duration
		if d != nil {
			if wait = w.sender.deliver(work, d); wait == 0 {
				w.done(d)
				continue
			}
			if ctx.Err() != nil {
				return
			}
			wait = min(wait, workerTime)
		} else {
			wait = w.display.show(ctx, work)
			if ctx.Err() != nil {
				w.display.preview.stopped = false // the gateway is stopping: one attempt is enough
				continue
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-timer.C:
			if wait == workerTime && w.yield() {
				timer.Stop()
				return
			}
		}
		timer.Stop()
	}
}

// next applies the received updates and returns the next delivery, or nil if only the preview needs
// work. It returns false if nothing needs work; w is then no longer the conversation's worker.
func (w *worker) next(work context.Context, stopping bool) (d *bus.Delivery, ok bool) {
	for {
		w.r.mu.Lock()
		// Not those that come meanwhile: they may come faster than they are applied.
		for n := len(w.updates); n > 0 && !w.display.preview.stopped; n-- {
			p := w.updates[0]
			w.updates = w.updates[1:]
			w.r.mu.Unlock()
			w.display.withhold(&p)
			w.r.mu.Lock()
			w.display.applyUpdate(&p)
		}
		d = w.first
		switch {
		case d != nil && w.check, d == nil && w.more:
			w.check, w.loading = false, true
			if d == nil {
				w.more = false
			}
			w.r.mu.Unlock()
			if !w.reload(work, d) {
				return nil, false
			}
			continue
		case d != nil, w.display.preview.stopped, w.display.preview.active() && !stopping:
			w.r.mu.Unlock()
			return d, true
		case len(w.updates) > 0 && !stopping:
			w.r.mu.Unlock()
			continue
		}
		w.end()
		w.r.mu.Unlock()
		return nil, false
	}
}

// reload reads the table: whether d must still be delivered or, if d is nil, which delivery is the
// first. It retries until that succeeds, and returns false when ctx is done.
func (w *worker) reload(ctx context.Context, d *bus.Delivery) bool {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		found, err := w.find(ctx, d)
		if err == nil {
			w.r.mu.Lock()
			w.loading = false
			if w.first = found; found != nil {
				w.a.read = max(w.a.read, found.ID)
				w.r.previews.end(found.Message.Stream)
			}
			w.more = w.more || found != nil || d != nil
			w.r.mu.Unlock()
			return true
		}
		if ctx.Err() == nil {
			w.r.log.ErrorContext(ctx, "outbox could not be read", "to", w.to.String(), "err", err)
		}
		if !channels.Sleep(ctx, wait) {
			return false
		}
	}
}

// find returns d if it must still be delivered and has begun or is the first, or else the first
// delivery of the conversation. A person can have put an earlier one back.
func (w *worker) find(ctx context.Context, d *bus.Delivery) (*bus.Delivery, error) {
	if d != nil {
		open, err := w.r.outbox.IsOpen(w.r.db.Read(ctx), d.ID)
		if err != nil || !open {
			return nil, err
		}
		if len(d.IDs) > 0 {
			return d, nil
		}
	}
	first, err := w.firstTo(ctx, w.to)
	if d != nil && first != nil && first.ID == d.ID {
		return d, err
	}
	return first, err
}

// firstTo returns the first delivery to an address, or nil. It sets rows aside that can't be read.
func (w *worker) firstTo(ctx context.Context, to bus.Address) (*bus.Delivery, error) {
	for {
		found, err := w.r.outbox.First(w.r.db.Read(ctx), to)
		aside, err := w.r.setAside(ctx, err)
		if err != nil || found != nil || aside == 0 {
			return found, err
		}
	}
}

// done removes d, which was sent or given up.
func (w *worker) done(d *bus.Delivery) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.a.pending--
	if w.first == d {
		w.first = nil
	}
	if other, moved := w.a.other(w.to); moved {
		if next, ok := w.r.workers[other]; ok {
			next.wake.Ring() // it may wait behind d
		}
	}
}

// yield ends w, which has waited for long, if a conversation without a worker needs one. It reports
// whether it has ended w. It does not if the table may lack the progress of the delivery, because
// the next worker of the conversation reads the table.
func (w *worker) yield() bool {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if !w.a.backlog.pending || w.a.loaded <= maxLoaded-yieldAtOnce || w.first == nil ||
		w.sender.sending || w.first.State != bus.Waiting || len(w.updates) > 0 ||
		w.display.preview.active() || w.a.isUnreachable() {
		return false
	}
	if s := w.first.Message.Stream; s != "" && w.sender.current == w.first {
		w.r.previews.kept[s] = w.sender.shown
	}
	w.a.backlog.add()
	w.end()
	return true
}
