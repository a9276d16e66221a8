package router

import (
	"context"
	"time"

	"gateway/bus"
	"gateway/store"
)

const (
	// maxLoaded is how many conversations of an account have a worker at the same time because
	// something waits for them. Each holds one message and a goroutine, together some 10 KB.
	maxLoaded = 1024
	// slotTime is how long a conversation that can't be reached keeps its worker while others wait
	// for one.
	slotTime = 10 * time.Second
	// yieldAtOnce is how many conversations may give up their workers before another gets one.
	yieldAtOnce = 64
	// fullScanInterval is how often the router reads everything that waits, in case it missed
	// something.
	fullScanInterval = time.Minute
	// keptTime is how long the messages of a preview are remembered for the answer that replaces
	// them.
	keptTime = 48 * time.Hour
)

// A backlog describes the conversations of an account for which something waits and that have no
// worker. The router finds them in passes over the table, in the order of their addresses.
type backlog struct {
	pending bool        // there may be some
	rescan  bool        // some may be before the cursor: another pass must follow
	cursor  bus.Address // how far the pass has come
}

// add notes that there may be one more, at any address.
func (w *backlog) add() { w.pending, w.rescan = true, w.pending }

// endPass ends a pass.
func (w *backlog) endPass() {
	w.pending, w.rescan = w.rescan, false
	w.cursor = bus.Address{}
}

// loadConversations starts workers for conversations for which something waits, up to maxLoaded.
func (r *Router) loadConversations(ctx, work context.Context) error {
	for _, a := range r.accounts {
		for {
			r.mu.Lock()
			after, ok := a.passAfter()
			r.mu.Unlock()
			if !ok {
				break
			}
			d, err := r.outbox.NextFirst(r.db.Read(work), after)
			aside, err := r.setAside(work, err)
			if err != nil {
				return err
			}
			if d != nil || aside == 0 { // else others may follow the rows that were set aside
				r.assignLoaded(ctx, work, a, d)
			}
		}
	}
	return nil
}

// passAfter returns the address after which the pass over the conversations of a goes on. It
// reports false if none wait or no more workers may run. Router.mu is held.
func (a *account) passAfter() (after bus.Address, ok bool) {
	after = a.backlog.cursor
	after.Account = a.Name
	return after, a.backlog.pending && a.loaded < maxLoaded
}

// assignLoaded assigns the delivery that a pass has found; d is nil at the end of the pass.
func (r *Router) assignLoaded(ctx, work context.Context, a *account, d *bus.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d == nil {
		a.backlog.endPass()
		return
	}
	to := d.Message.To
	a.backlog.cursor = to
	if c, running := r.conversations[to]; running {
		c.expectMore()
		return
	}
	c := r.conversation(ctx, work, a, to)
	c.assign(d)
	c.more = true
}

// rescan finds what another process has changed, and what was missed.
func (r *Router) rescan(ctx context.Context) error {
	q := r.db.Read(ctx)
	n, err := r.outbox.Changes(q)
	if err != nil {
		return err
	}
	now := r.now()
	if n == r.seen.changes && now.Sub(r.seen.scanned) < fullScanInterval {
		return nil
	}
	if n != r.seen.changes {
		r.mu.Lock()
		for _, c := range r.conversations {
			c.check = true
			c.expectMore()
		}
		r.mu.Unlock()
		if err := r.endDropped(ctx, q); err != nil {
			return err
		}
	}
	r.seen.changes = n
	r.forgetKept(ctx, now.Add(-keptTime))
	return r.scanAll(q)
}

// maxDropped is how many dropped messages are looked at after a change.
const maxDropped = 100

// endDropped ends the previews and reactions of answers that somebody has dropped from the outbox.
func (r *Router) endDropped(ctx context.Context, q store.Queryer) error {
	list, err := r.outbox.List(q, bus.Dropped, maxDropped)
	if _, err := r.setAside(ctx, err); err != nil {
		return err
	}
	var streams []string
	for _, d := range list {
		if a, ok := r.accounts[d.Message.To.Account]; ok {
			a.marks.answered(d.Message.To, d.Message.Answers, r.now())
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

// scanAll counts everything that waits, and begins a pass over it.
func (r *Router) scanAll(q store.Queryer) error {
	r.seen.scanned = r.now()
	open, err := r.outbox.OpenByAccount(q)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.accounts {
		if a.pending = open[a.Name]; a.pending > 0 {
			a.backlog.add()
		}
	}
	return nil
}

// forgetKept forgets the previews that no answer has replaced since a time: their turns have ended
// without saying so.
func (r *Router) forgetKept(ctx context.Context, before time.Time) {
	r.mu.Lock()
	n := len(r.previews.kept)
	for stream, m := range r.previews.kept {
		if m.orphaned.Before(before) {
			delete(r.previews.kept, stream)
		}
	}
	n -= len(r.previews.kept)
	r.mu.Unlock()
	if n == 0 {
		return
	}
	err := r.db.Tx(ctx, func(tx *store.Tx) error { return r.outbox.PrunePreviews(tx, before) })
	if err != nil {
		r.log.WarnContext(ctx, "old previews not removed", "err", err)
	}
}

// setAside sets aside the rows that, as err says, could not be read, and returns how many they are.
// If err reports anything else it is returned.
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
