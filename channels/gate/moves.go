package gate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"gateway/bus"
	"gateway/store"
)

// A Move is a group that goes on under another id.
type Move struct {
	Account string
	Chat    string // platform's id
	Before  string // its id before
}

// Moves returns the groups that have moved.
func Moves(q store.Queryer) ([]Move, error) {
	return store.Collect(q, "gate: read moves", func(scan store.Scan, m *Move) error {
		return scan(&m.Account, &m.Chat, &m.Before)
	}, "SELECT account, chat, before FROM moves ORDER BY account, chat")
}

// Load reads which groups have moved, for [Gate.PreviousID]. Call it before anything runs.
func (g *Gate) Load(ctx context.Context) error {
	list, err := Moves(g.db.Read(ctx))
	for _, m := range list {
		g.moves.add(m)
		g.moves.markStored(m.Account, map[string]string{m.Chat: m.Before})
	}
	return err
}

// moves are the ids of the groups that have moved. A group moves once. The methods of moves are
// safe for concurrent use.
type moves struct {
	mu     sync.Mutex
	before map[identity]string // by the present id
	now    map[identity]string // by the id before
	stored map[identity]bool   // those in the table, by the present id
}

func newMoves() *moves {
	return &moves{before: make(map[identity]string), now: make(map[identity]string),
		stored: make(map[identity]bool)}
}

func (s *moves) add(m Move) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[identity{m.Account, m.Chat}] = m.Before
	s.now[identity{m.Account, m.Before}] = m.Chat
}

// markStored records that the table has moves of an account, given as a batch has them.
func (s *moves) markStored(account string, list map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for chat := range list {
		s.stored[identity{account, chat}] = true
	}
}

// unstored returns those of the moves that the table does not have. A platform may report a move
// with each message to the earlier id.
func (s *moves) unstored(account string, list map[string]string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list = maps.Clone(list)
	maps.DeleteFunc(list, func(chat, _ string) bool { return s.stored[identity{account, chat}] })
	return list
}

// of returns the ids of a chat before and after it moved; "" if there is none.
func (s *moves) of(a bus.Address) (before, now string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	chat := identity{a.Account, a.Chat}
	return s.before[chat], s.now[chat]
}

// PreviousID returns the id that a group had before it moved, or "". Rules for that id still apply
// to the group.
func (g *Gate) PreviousID(a bus.Address) string {
	before, _ := g.moves.of(a)
	return before
}

// OtherID returns the other id of a group that has moved, or "": the one before for the present
// one, and the other way round. Messages to both ids go to the same place.
func (g *Gate) OtherID(a bus.Address) string { return cmp.Or(g.moves.of(a)) }

// Present returns the present address of a group that g knows, given an earlier one. Other
// addresses remain.
func Present(g *Gate, a bus.Address) bus.Address {
	_, now := g.moves.of(a)
	a.Chat = cmp.Or(now, a.Chat)
	return a
}

// saveMigrations stores the earlier ids of groups that have moved. If the configuration has rules
// for the earlier id, the owners learn that there is a new one.
func (in *intake) saveMigrations(tx *store.Tx, moved map[string]string) error {
	for chat, before := range moved {
		in.gate.moves.add(Move{in.account, chat, before}) // before a turn can see a message from there
		n, err := tx.Exec(`INSERT INTO moves (account, chat, before) VALUES ($1, $2, $3)
			ON CONFLICT (account, chat) DO NOTHING`, in.account, chat, before)
		p := in.gate.policy(in.account)
		if err == nil && n > 0 &&
			slices.Contains(slices.Concat(p.Groups, p.Ruled, p.Overhear), before) {
			err = in.tellMoved(tx, chat, before)
		}
		if err != nil {
			return fmt.Errorf("gate: group of %s that moved: %w", in.account, err)
		}
	}
	return nil
}

// ids returns all ids of a group, the present one first, given one of them.
func (Groups) ids(q store.Queryer, account, chat string) ([]string, error) {
	ids := []string{chat}
	err := store.Each(q, "gate: read moves", func(scan store.Scan) error {
		ids = make([]string, 2)
		return scan(&ids[0], &ids[1])
	}, "SELECT chat, before FROM moves WHERE account = $1 AND $2 IN (chat, before)", account, chat)
	return ids, err
}

// key returns the id of a group in the table, given one of its ids: the decision about a group that
// has moved keeps the earlier id.
func (groups Groups) key(q store.Queryer, account, chat string) (string, error) {
	ids, err := groups.ids(q, account, chat)
	for i := 0; i < len(ids) && err == nil; i++ {
		var known bool
		err = q.QueryRow("SELECT count(*) > 0 FROM known_groups WHERE account = $1 AND chat = $2",
			account, ids[i]).Scan(&known)
		if known {
			return ids[i], err
		}
	}
	return chat, err
}

func (in *intake) tellMoved(tx *store.Tx, chat, before string) error {
	g := in.gate
	g.log.Warn("a group has another id now: put it into the configuration, too",
		"account", in.account, "before", before, "now", chat)
	owners, err := OwnerChats(tx, g)
	if err != nil {
		return err
	}
	return tell(tx, g.outbox, owners, bus.OutboundMessage{Text: fmt.Sprintf(
		"The group `%s` of %s has another id now: `%s`. The configuration still applies to "+
			"it. Please add the new id there, in `groups` and in policies.",
		before, in.account, chat)}, g.now())
}
