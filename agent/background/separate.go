package background

import (
	"context"
	"time"

	"gateway/agent/prompt"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// A Separation gives what somebody does on an account to another person: their direct chats, their
// messages in groups, and the jobs that they have set up there. The memory stays with the first
// person. Without a Separation, a job or a heartbeat would bring words of that memory into those
// chats.
type Separation struct {
	Account, Sender string // platform's id of the sender
	From, To        int64  // people

	moved int64 // messages in groups up to this id were moved
}

// separatePause is the time between two transactions of [Separation.Prepare]. It runs beside the
// process that owns the database, which tries again only now and then.
const separatePause = 30 * time.Millisecond

// Prepare moves the finished messages but the newest, in short transactions, so that little remains
// for [Separation.Apply]. To must already be a former number of From: until Apply, the messages
// still belong to From, also if Apply never follows.
func (s *Separation) Prepare(ctx context.Context, db *store.DB) error {
	q := db.Read(ctx)
	direct, err := s.chats(q)
	for i := 0; i < len(direct) && err == nil; i++ {
		var newest int64 // it stays, because it says whose chat this is
		newest, err = bus.NewestOf(q, s.From, direct[i])
		if err == nil {
			err = s.moveOlder(ctx, db, direct[i], "", newest-1)
		}
	}
	if err != nil {
		return err
	}
	finished, err := bus.FinishedUpTo(q, s.Account, s.From)
	if err != nil {
		return err
	}
	groups, err := bus.Groups(q, s.From)
	for i := 0; i < len(groups) && err == nil; i++ {
		if groups[i].Account == s.Account {
			err = s.moveOlder(ctx, db, groups[i], s.Sender, finished)
		}
	}
	s.moved = finished
	return err
}

// moveOlder moves the messages of a chat up to an id. See [bus.MoveOlder].
func (s *Separation) moveOlder(
	ctx context.Context, db *store.DB, a bus.Address, sender string, upTo int64,
) error {
	for after := int64(0); after < upTo; {
		next := int64(0)
		err := db.TxSoon(ctx, func(tx *store.Tx) (err error) {
			next, err = bus.MoveOlder(tx, a, sender, s.From, s.To, after, upTo)
			return err
		})
		if err != nil {
			return err
		}
		after = next
		pause := time.NewTimer(separatePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// chats returns the direct chats of the sender.
func (s *Separation) chats(q store.Queryer) (list []bus.Address, err error) {
	all, err := bus.DirectChats(q, s.From)
	for i := 0; i < len(all) && err == nil; i++ {
		var who bus.Sender
		who, err = bus.DirectSender(q, all[i])
		if all[i].Account == s.Account && who.ID == s.Sender {
			list = append(list, all[i])
		}
	}
	return list, err
}

// Apply moves everything, or what Prepare has left.
func (s *Separation) Apply(tx *store.Tx, now time.Time) error {
	chats, err := s.chats(tx)
	for i := 0; i < len(chats) && err == nil; i++ {
		err = separateChat(tx, chats[i], s.From, s.To, now)
	}
	if err == nil {
		err = bus.MoveMember(tx, s.Account, s.Sender, s.From, s.To, s.moved)
	}
	if err == nil {
		err = schedule.MoveSender(tx, s.Account, s.Sender, s.From, s.To)
	}
	return store.Wrap(err, "background: separate %s on %s from person %d", s.Sender, s.Account,
		s.From)
}

func separateChat(tx *store.Tx, a bus.Address, from, to int64, now time.Time) error {
	if err := endShared(tx, a, from, now); err != nil {
		return err
	}
	// The outcome of a task would bring words of that memory into the chat.
	waiting, err := Store{}.TakeNotices(tx, memory.OfPerson(from), a)
	for i := 0; i < len(waiting) && err == nil; i++ {
		waiting[i].Text = saySeparated
		err = bus.NewOutbox().Put(tx, waiting[i], now)
	}
	if err != nil {
		return err
	}
	keys, err := session.OfChat(tx, a)
	for i := 0; i < len(keys) && err == nil; i++ {
		var s session.Summary
		s, err = session.ReadSummary(tx, keys[i])
		if err == nil && s.Scope == memory.OfPerson(from) {
			err = session.SetScope(tx, keys[i], memory.OfPerson(to))
		}
	}
	if err != nil {
		return err
	}
	return bus.MovePerson(tx, a, from, to)
}

// saySeparated is the answer to a message whose turn or task a [Separation] has ended.
const saySeparated = "I have stopped working on this, because your accounts were separated. " +
	"Please ask me again."

// endShared ends the turns that answer in a chat from the conversation that a person has in all
// direct chats. Their answers would bring words of the other chats into this one.
func endShared(tx *store.Tx, a bus.Address, person int64, now time.Time) error {
	keys, err := session.OfPerson(tx, person)
	for i := 0; i < len(keys) && err == nil; i++ {
		var t *session.Turn
		if t, err = session.RunningTurn(tx, keys[i]); t != nil && ChatOf(t.Address) == a {
			err = endSeparated(tx, t, now)
		}
	}
	return err
}

// endSeparated ends a turn with an explanation.
func endSeparated(tx *store.Tx, t *session.Turn, now time.Time) error {
	inbox := bus.NewInbox()
	taken, err := inbox.ClaimedBy(tx, t.ID)
	if err != nil {
		return err
	}
	out := bus.OutboundMessage{To: t.Address, ReplyTo: t.ReplyTo, Text: saySeparated}
	for _, r := range taken {
		if r.Message.Origin.Kind == bus.Person {
			out.Answers = append(out.Answers, r.Message.ID)
		}
	}
	if len(out.Answers) > 0 { // nobody waits for the turn of a sub-agent
		if err := bus.NewOutbox().Put(tx, out, now); err != nil {
			return err
		}
	}
	return CloseTurn(tx, inbox, t, now, prompt.ResultMissing, saySeparated)
}
