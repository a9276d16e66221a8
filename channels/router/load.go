package router

import (
	"context"
	"time"

	"gateway/bus"
	"gateway/store"
)

const (
	// maxLoaded is how many conversations of an account have a worker because something waits for
	// them. Each holds one message and a goroutine, together some 10 KB.
	maxLoaded = 1024
	// placeTime is how long a conversation that can't be reached keeps its worker while others wait
	// for one.
	placeTime = 10 * time.Second
	// yieldAtOnce is how many of them give theirs up before one of the others has one.
	yieldAtOnce = 64
	// lookInterval is how soon all that waits is looked for, whatever was missed.
	lookInterval = time.Minute
	// keptTime is how long messages that show a preview are remembered for the answer that is to
	// take their place.
	keptTime = 48 * time.Hour
)

// A waits says what is known of the conversations of an account for which something waits and that
// have no worker. They are looked for in passes over all, in the order of their addresses.
type waits struct {
	any    bool        // there may be some
	again  bool        // perhaps behind the pass: another one must follow
	cursor bus.Address // the pass has come so far
}

// add notes that there may be one more, anywhere.
func (w *waits) add() { w.any, w.again = true, w.any }

// end ends a pass.
func (w *waits) end() {
	w.any, w.again = w.again, false
	w.cursor = bus.Address{}
}

// load starts workers for conversations for which something waits, as far as there is room.
func (r *Router) load(ctx, work context.Context) error {
	for _, a := range r.accounts {
		for {
			after, ok := r.loadAfter(a)
			if !ok {
				break
			}
			d, err := r.outbox.NextFirst(r.db.Read(work), after)
			aside, err := r.setAside(work, err)
			if err != nil {
				return err
			}
			if d != nil || aside == 0 { // else others may come after those
				r.loaded(ctx, work, a, d)
			}
		}
	}
	return nil
}

// loadAfter returns where to go on with the conversations of a, or reports false if there are none
// or there is no room.
func (r *Router) loadAfter(a *account) (after bus.Address, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	after = a.waits.cursor
	after.Account = a.Name
	return after, a.waits.any && a.loaded < maxLoaded
}

// loaded hands out the delivery that a pass has come to, nil at its end.
func (r *Router) loaded(ctx, work context.Context, a *account, d *bus.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d == nil {
		a.waits.end()
		return
	}
	to := d.Message.To
	a.waits.cursor = to
	if c, running := r.chats[to]; running {
		c.expect()
		return
	}
	c := r.chat(ctx, work, a, to)
	c.hold(d)
	c.more = true
}

// rescan notices what another process has done: a person's changes, and what was missed.
func (r *Router) rescan(ctx context.Context) error {
	q := r.db.Read(ctx)
	n, err := r.outbox.Changes(q)
	if err != nil {
		return err
	}
	now := r.now()
	if n == r.changes && now.Sub(r.looked) < lookInterval {
		return nil
	}
	if n != r.changes {
		r.mu.Lock()
		for _, c := range r.chats {
			c.check = true
			c.expect()
		}
		r.mu.Unlock()
		if err := r.endDropped(ctx, q); err != nil {
			return err
		}
	}
	r.changes = n
	r.forgetKept(ctx, now.Add(-keptTime))
	return r.lookAgain(q)
}

// maxDropped is how many messages that a person has dropped are looked at after a change.
const maxDropped = 100

// endDropped ends what people see of answers that persons have dropped: none is on its way now.
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
			delete(r.kept, s)
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

// lookAgain has all that waits looked for, and counts it.
func (r *Router) lookAgain(q store.Queryer) error {
	r.looked = r.now()
	open, err := r.outbox.OpenByAccount(q)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.accounts {
		if a.open = open[a.Name]; a.open > 0 {
			a.waits.add()
		}
	}
	return nil
}

// forgetKept forgets previews that no answer has taken the place of since a time: their turns
// have ended without a word of it.
func (r *Router) forgetKept(ctx context.Context, before time.Time) {
	r.mu.Lock()
	n := len(r.kept)
	for stream, m := range r.kept {
		if m.since.Before(before) {
			delete(r.kept, stream)
		}
	}
	n -= len(r.kept)
	r.mu.Unlock()
	if n == 0 {
		return
	}
	err := r.db.Tx(ctx, func(tx *store.Tx) error { return r.outbox.PrunePreviews(tx, before) })
	if err != nil {
		r.log.WarnContext(ctx, "old previews not removed", "err", err)
	}
}

// setAside sets aside the rows that could not be read, and returns how many, or err if it says of
// something else.
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
