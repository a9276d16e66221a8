package gate

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"gateway/bus"
	"gateway/store"
)

// maxWaiting is the maximum number of messages of all chats that may wait in the inbox. At two
// turns per second, which is a lot for a model's provider, they take seven hours. Beyond that it is
// better to tell people that their messages are dropped.
const maxWaiting = 50_000

// A backlog counts the messages that wait in the inbox.
type backlog struct {
	mu       sync.Mutex
	waiting  int                   // the last count plus later messages
	counted  time.Time             // when the inbox was counted
	notified map[identity]struct{} // chats that were told that the inbox is full
}

// countAge is how long a count of the inbox remains valid.
const countAge = time.Second

// isFull reports whether the inbox has no room for m. If so, tell reports whether the chat of m
// must still be told. Admins and owners may always write, because they can solve the problem.
func (g *Gate) isFull(q store.Queryer, m bus.InboundMessage) (isFull, tell bool, err error) {
	if m.Role.AtLeast(bus.Admin) {
		return false, false, nil
	}
	l := &g.backlog
	l.mu.Lock()
	defer l.mu.Unlock()
	now := g.now()
	if age := now.Sub(l.counted); age < 0 || age >= countAge {
		// The limit bounds the cost: counting 50,000 index entries takes a millisecond.
		err := q.QueryRow("SELECT count(*) FROM (SELECT 1 FROM inbox WHERE state = 'waiting' "+
			"LIMIT $1) AS some", maxWaiting).Scan(&l.waiting)
		if err != nil {
			return false, false, fmt.Errorf("gate: count inbox: %w", err)
		}
		l.counted = now
	}
	if l.waiting < maxWaiting {
		l.notified = nil
		return false, false, nil
	}
	c := identity{m.From.Account, m.From.Chat}
	_, told := l.notified[c]
	if !told {
		if l.notified == nil {
			l.notified = make(map[identity]struct{})
		}
		l.notified[c] = struct{}{}
	}
	return true, !told, nil
}

// limit returns the decision on m, whose sender is admitted. It depends on the room in the inbox
// and on the sender's rate. If the outcome could not be stored, undo returns the token to the rate
// limiter, or makes the next decision tell the sender again. If m is dropped without a reply in the
// chat, limit may add a text to unanswered. If m is for the agent only because it joins another
// message, it becomes context instead.
func (in *intake) limit(
	ctx context.Context, p Policy, m *bus.InboundMessage, joins bool, unanswered map[string]string,
) (d decision, undo func(), err error) {
	g, undo := in.gate, func() {}
	limited := *m
	if m.VoiceState == bus.Overheard { // has limits of its own, because nobody is told about them
		limited.Sender.ID += "\x00overheard"
		limited.From.Chat += "\x00overheard"
	}
	reason, d := "its sender writes too fast", tooFast
	full, tell, err := g.isFull(g.db.Read(ctx), limited)
	if err != nil {
		return dropped, undo, err
	}
	var ok bool
	if full {
		reason, d = "the inbox is full; the model answers too slowly or not at all", inboxFull
		undo = func() { g.backlog.untell(limited.From) }
	} else if ok, tell, undo = g.rates.allow(limited, p.PerMinute); ok {
		return admitted, undo, nil
	}
	if joins {
		undo()
		return ambient, func() {}, nil
	}
	if m.VoiceState == bus.Overheard { // it is not transcribed
		m.VoiceState = ""
		return ambient, undo, nil
	}
	level := slog.LevelWarn
	if full {
		level = slog.LevelError
	}
	g.log.Log(ctx, level, "message dropped: "+reason,
		"from", m.From.String(), "id", m.ID, "dropped", g.dropped.Add(1))
	in.stats.Dropped.Add(1)
	switch {
	case tell:
		return d, undo, nil
	case !full:
		unanswered[m.ID] = textTooFast
	}
	return dropped, undo, nil
}

// untell records that a chat was not told that the inbox is full.
func (l *backlog) untell(chat bus.Address) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.notified, identity{chat.Account, chat.Chat})
}

// add counts n new messages in the inbox.
func (l *backlog) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting += n
}
