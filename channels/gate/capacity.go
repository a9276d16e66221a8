package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gateway/bus"
	"gateway/store"
)

// maxWaiting is how many messages of all chats together may wait in the inbox. At two turns a
// second, which is a lot for a model's provider, they wait for seven hours: who writes then had
// better be told so.
const maxWaiting = 50_000

// A level says how full the inbox is.
type level struct {
	mu      sync.Mutex
	waiting int                   // as it was counted last, with what has come since
	counted time.Time             // when
	told    map[identity]struct{} // chats that know
}

// countAge is how long a count of the inbox holds.
const countAge = time.Second

// full reports whether there is no room in the inbox for m. If so, tell reports whether its chat
// does not know that yet. Admins and owners, who can do something about it, are not bounded.
func (g *Gate) full(q store.Queryer, m bus.InboundMessage) (full, tell bool, err error) {
	if m.Role.AtLeast(bus.Admin) {
		return false, false, nil
	}
	l := &g.level
	l.mu.Lock()
	defer l.mu.Unlock()
	now := g.now()
	if age := now.Sub(l.counted); age < 0 || age >= countAge {
		// No more than matters is counted: 50,000 entries of the index are a millisecond.
		err := q.QueryRow("SELECT count(*) FROM (SELECT 1 FROM inbox WHERE state = 'waiting' "+
			"LIMIT $1) AS some", maxWaiting).Scan(&l.waiting)
		if err != nil {
			return false, false, fmt.Errorf("gate: count inbox: %w", err)
		}
		l.counted = now
	}
	if l.waiting < maxWaiting {
		l.told = nil
		return false, false, nil
	}
	c := identity{m.From.Account, m.From.Chat}
	_, told := l.told[c]
	if !told {
		if l.told == nil {
			l.told = make(map[identity]struct{})
		}
		l.told[c] = struct{}{}
	}
	return true, !told, nil
}

// room returns what becomes of m, whose sender is admitted, by the room that there is in the inbox.
func (in *intake) room(ctx context.Context, m bus.InboundMessage) (verdict, error) {
	g := in.gate
	full, tell, err := g.full(g.db.Read(ctx), m)
	if err != nil || !full {
		return admitted, err
	}
	g.log.ErrorContext(ctx, "message dropped: the inbox is full, so the model answers too slowly or "+
		"not at all", "from", m.From.String(), "id", m.ID, "dropped", g.dropped.Add(1))
	in.stats.Dropped.Add(1)
	if tell {
		return crowded, nil
	}
	return lost, nil
}

// add counts messages that are new in the inbox.
func (l *level) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting += n
}
