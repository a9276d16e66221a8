package router

import (
	"context"
	"maps"
	"time"

	"gateway/bus"
	"gateway/store"
)

const (
	// maxLoaded is the maximum number of an account's conversations that have a worker because
	// something waits for them. Each one takes some 10 KB for a message and a goroutine.
	maxLoaded = 1024
	// workerTime is how long an unreachable conversation keeps its worker while others wait for one.
	workerTime = 10 * time.Second
	// yieldAtOnce is how many conversations may give up their workers before another one gets one.
	yieldAtOnce = 64
	// fullScanInterval is how often the router reads all waiting messages, in case it missed one.
	fullScanInterval = time.Minute
	// keptTime is how long the messages of a preview are kept for the answer that replaces them.
	keptTime = 48 * time.Hour
)

// A backlog describes an account's conversations that have waiting messages but no worker. The
// router finds them in passes over the table, in the order of their addresses.
type backlog struct {
	pending bool        // there may be some
	rescan  bool        // some may be before the cursor, so another pass must follow
	cursor  bus.Address // position of the current pass
	ahead   []found     // conversations before the cursor that have no worker yet, in order
	last    bool        // no others follow the cursor
}

// A found is a conversation that a pass has found.
type found struct {
	first bus.Delivery // as of when the table was read
	stale bool         // the conversation had a worker since then, which may have changed first
}

// add records that there may be one more, at any address.
func (w *backlog) add() { w.pending, w.rescan = true, w.pending }

// invalidate records that the first deliveries to the conversations for which is holds may have
// changed since the table was read.
func (w *backlog) invalidate(is func(to bus.Address) bool) {
	for i := range w.ahead {
		f := &w.ahead[i]
		f.stale = f.stale || is(f.first.Message.To)
	}
}

// endPass ends a pass.
func (w *backlog) endPass() {
	w.pending, w.rescan, w.last = w.rescan, false, false
	w.cursor = bus.Address{}
}

// loadConversations starts workers for waiting conversations, up to maxLoaded.
func (r *Router) loadConversations(ctx, work context.Context) error {
	for _, a := range r.accounts {
		for r.assignAhead(ctx, work, a) {
			r.mu.Lock()
			after := a.backlog.cursor
			r.mu.Unlock()
			after.Account = a.Name
			list, err := r.outbox.NextConversations(r.db.Read(work), after)
			aside, err := r.setAside(work, err)
			if err != nil {
				return err
			}
			if aside == 0 { // otherwise rows may follow those that were set aside
				a.addAhead(r, list)
			}
		}
	}
	return nil
}

// addAhead adds conversations that a pass has found, with the first delivery to each.
func (a *account) addAhead(r *Router, list []bus.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.backlog.last = len(list) < bus.MaxFirsts
	for _, d := range list {
		to := d.Message.To
		_, running := r.workers[to]
		a.backlog.ahead = append(a.backlog.ahead, found{d, running})
		a.backlog.cursor, a.read = to, max(a.read, d.ID)
	}
}

// assignAhead starts workers for conversations that a pass has found. more reports that the pass
// goes on and more workers may run.
func (r *Router) assignAhead(ctx, work context.Context, a *account) (more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &a.backlog
	for w.pending && a.loaded < maxLoaded {
		if len(w.ahead) == 0 {
			if !w.last {
				return true
			}
			w.endPass()
			continue
		}
		f := w.ahead[0]
		w.ahead = w.ahead[1:]
		to := f.first.Message.To
		w, running := r.workers[to]
		if running || f.stale {
			if !running {
				w = r.worker(ctx, work, a, to)
			}
			w.expectMore()
			continue
		}
		w = r.worker(ctx, work, a, to)
		w.assign(&f.first)
		w.more = true
	}
	return false
}

// rescan finds changes by other processes, and rows that were missed.
func (r *Router) rescan(ctx context.Context) error {
	q := r.db.Read(ctx)
	n, err := r.outbox.Changes(q)
	if err != nil {
		return err
	}
	now := r.now()
	if n == r.position.changes && now.Sub(r.position.scanned) < fullScanInterval {
		return nil
	}
	if n != r.position.changes {
		r.mu.Lock()
		for _, w := range r.workers {
			w.check = true
			w.expectMore()
		}
		for _, a := range r.accounts {
			a.backlog.invalidate(func(bus.Address) bool { return true })
		}
		r.mu.Unlock()
		if err := r.endDropped(ctx, q); err != nil {
			return err
		}
	}
	r.position.changes = n
	r.forgetKept(ctx, now.Add(-keptTime))
	return r.scanAll(q)
}

// maxDropped is the maximum number of dropped messages to check after a change.
const maxDropped = 100

// endDropped ends the previews and reactions of answers that a person has dropped from the outbox.
func (r *Router) endDropped(ctx context.Context, q store.Queryer) error {
	list, err := r.outbox.List(q, bus.Dropped, maxDropped)
	if _, err := r.setAside(ctx, err); err != nil {
		return err
	}
	var streams []string
	before := r.position.dropped
	r.position.dropped = make(map[int64]bool)
	for _, d := range list {
		r.position.dropped[d.ID] = true
		if before[d.ID] {
			continue
		}
		a, ok := r.accounts[d.Message.To.Account]
		if now := r.now(); ok && now.Sub(d.Changed) < longestMark {
			a.marks.answered(d.Message.To, d.Message.Answers, now)
		}
		if s := d.Message.Stream; s != "" {
			streams = append(streams, s)
			r.mu.Lock()
			delete(r.previews.kept, s)
			r.mu.Unlock()
		}
	}
	if len(streams) == 0 {
		return nil
	}
	return r.db.Tx(ctx, func(tx *store.Tx) error {
		for _, s := range streams {
			if err := r.outbox.ForgetPreview(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// scanAll counts all waiting messages and begins a pass over them.
func (r *Router) scanAll(q store.Queryer) error {
	r.position.scanned = r.now()
	open, err := bus.OpenByAccount(q)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.accounts {
		clear(a.announced) // also of messages whose transactions failed
		if a.pending = open[a.Name]; a.pending > 0 {
			a.backlog.add()
		}
	}
	return nil
}

// forgetKept forgets previews that no answer has replaced since a time, because their turns ended
// silently.
func (r *Router) forgetKept(ctx context.Context, before time.Time) {
	r.mu.Lock()
	n := len(r.previews.kept)
	maps.DeleteFunc(r.previews.kept, func(_ string, m messages) bool {
		return m.orphaned.Before(before)
	})
	n -= len(r.previews.kept)
	r.mu.Unlock()
	if n == 0 {
		return
	}
	err := r.db.Tx(ctx, func(tx *store.Tx) error { return r.outbox.PrunePreviews(tx, before) })
	if err != nil {
		r.log.WarnContext(ctx, "old previews could not be removed", "err", err)
	}
}

// setAside sets aside the rows that err reports as unreadable, and returns their number. It returns
// err if err reports anything else.
func (r *Router) setAside(ctx context.Context, err error) (int, error) {
	bad, ok := store.RowErrors(err)
	if !ok || len(bad) == 0 {
		return 0, err
	}
	err = r.db.Tx(ctx, func(tx *store.Tx) error {
		for _, row := range bad {
			if err := r.outbox.SetAside(tx, row); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, row := range bad {
		r.stats.Bad.Add(1)
		r.log.ErrorContext(ctx, "a message to people can't be read and is set aside: "+
			"it is the row with this id in the table outbox", "id", row.ID, "err", row.Err)
	}
	return len(bad), nil
}
