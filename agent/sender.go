package agent

import (
	"context"
	"slices"

	"gateway/bus"
	"gateway/store"
)

// A message waits in the inbox with the number that its sender had when writing it. Meanwhile the
// sender may have been forgotten. Then nothing may be stored under that number any more.

// updateSender returns r with who its sender is now, if no person has the sender's number any more.
// ok is false if the sender may not write any more: then r is dropped.
func (d *Dispatcher) updateSender(
	ctx context.Context, r bus.Received,
) (_ bus.Received, ok bool, err error) {
	before := r.Message.Person
	if before == 0 || r.Message.Origin.Kind != bus.Person {
		return r, true, nil
	}
	read := d.DB.Read(context.WithoutCancel(ctx))
	known, err := d.People.Known(read, before)
	if known || err != nil {
		return r, true, err
	}
	now := r
	if ok, err = d.People.MayWrite(read, &now.Message); err != nil {
		return r, true, err
	}
	former, err := d.People.FormerIDs(read, now.Message.Person)
	if err != nil || now.Message.Person == before || slices.Contains(former, before) {
		return r, true, err // a linked person: the next turn moves the memory
	}
	m := &now.Message
	m.Addressed = r.Message.Addressed
	if m.Origin.Conversation.Person == before {
		m.Origin.Conversation.Person = m.Person
	}
	waiting := true
	err = d.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		switch {
		case !ok:
			if _, err = d.Inbox.Drop(tx, r.Seq); err == nil && !m.Group { // strangers leave no rows
				_, err = d.Inbox.Erase(tx, m.From, r.Seq-1, r.Seq)
			}
		case m.VoiceState != bus.Overheard: // otherwise the transcriber stores it
			waiting, err = bus.StoreSender(tx, now)
		}
		return err
	})
	if err != nil {
		return r, true, err
	}
	d.opts.Logger.InfoContext(ctx, "sender of a waiting message has changed", "seq", r.Seq,
		"dropped", !ok)
	return now, ok && waiting, nil
}
