package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"gateway/agent/budget"
	"gateway/bus"
	"gateway/store"
)

// A message waits in the inbox with the number that its sender had when writing it. Meanwhile the
// sender may have been forgotten: then nothing may be stored under that number any more. Or the
// sender may have been unlinked: then that number is another person's. So the dispatcher checks
// each message that it hands out, and each turn checks the messages that it claims. Such a message
// keeps its place among those that wait for its session. A turn in a group goes on when its author
// is forgotten: then the payer of its usage changes.

// senders finds the present senders of waiting messages.
type senders struct {
	*Deps
	log *slog.Logger
}

// update returns r with the present number and role of its sender, if the number in r is no longer
// theirs. ok is false if r no longer waits, or if the sender may no longer write: then update drops
// r.
func (s senders) update(
	ctx context.Context, r bus.Received,
) (_ bus.Received, ok bool, err error) {
	now, ok, err := s.find(s.DB.Read(context.WithoutCancel(ctx)), &r.Message)
	if err != nil || now == nil {
		return r, true, err
	}
	r.Message = *now
	waiting := true
	err = s.DB.Tx(context.WithoutCancel(ctx), func(tx *store.Tx) (err error) {
		switch {
		case !ok:
			if _, err = s.Inbox.Drop(tx, r.Seq); err == nil && !now.Group { // strangers leave no rows
				_, err = s.Inbox.Erase(tx, now.From, r.Seq-1, r.Seq)
			}
		case now.VoiceState != bus.Overheard: // otherwise the transcriber stores it
			waiting, err = bus.StoreSender(tx, r)
		}
		return err
	})
	if err != nil {
		return r, true, err
	}
	s.log.InfoContext(ctx, "sender of a waiting message has changed", "seq", r.Seq,
		"dropped", !ok)
	if !ok {
		s.Accounts.Dropped([]bus.InboundMessage{*now})
	}
	return r, ok && waiting, nil
}

// Renew implements [turn.Senders].
func (s senders) Renew(
	ctx context.Context, r bus.Received,
) (now bus.Received, ok bool, err error) {
	now, ok, err = s.update(ctx, r)
	return now, ok && now.Message.Person != r.Message.Person, err
}

// IsCurrent implements [turn.Senders].
func (s senders) IsCurrent(q store.Queryer, m *bus.InboundMessage) (bool, error) {
	now, _, err := s.find(q, m)
	return now == nil, err
}

// payer implements [modelcall.Calls.Payer]. Background tasks, which have no sender, don't outlive
// the person.
func (s senders) payer(q store.Queryer, who budget.Spender) (budget.Spender, error) {
	account, sender, ok := strings.Cut(who.Sender, "/")
	if !ok {
		return who, nil
	}
	now, _, err := s.find(q, &bus.InboundMessage{Person: who.Person,
		From: bus.Address{Account: account}, Sender: bus.Sender{ID: sender}})
	if now != nil {
		who.Person = now.Person
	}
	return who, err
}

// find returns m with the present number and role of its sender, if the person whose number m has
// was forgotten, or if the sender was unlinked from that person. Otherwise it returns nil. ok
// reports whether the sender may still write.
func (s senders) find(
	q store.Queryer, m *bus.InboundMessage,
) (now *bus.InboundMessage, ok bool, err error) {
	before := m.Person
	if before == 0 || m.Origin.Kind != bus.Person {
		return nil, true, nil
	}
	known, err := s.People.Known(q, before)
	if err != nil {
		return nil, true, err
	}
	now = new(*m)
	if ok, err = s.People.MayWrite(q, now); err != nil || now.Person == before {
		return nil, true, err
	}
	if known {
		// The sender was unlinked, unless the gate still has a number from before a link, which is
		// nobody's any more.
		if known, err = s.People.Known(q, now.Person); !known || err != nil {
			return nil, true, err
		}
	}
	former, err := s.People.FormerIDs(q, now.Person)
	if err != nil || slices.Contains(former, before) {
		return nil, true, err // a linked person: the next turn moves the memory
	}
	now.Addressed = m.Addressed
	if now.Origin.Conversation.Person == before {
		now.Origin.Conversation.Person = now.Person
	}
	return now, ok, nil
}
