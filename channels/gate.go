package channels

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gateway/bus"
	"gateway/store"
	"gateway/store/fault"
)

// An Access says who may write to an account in direct chats.
type Access string

// The kinds of access.
const (
	Open      Access = "open"    // everybody
	ByList    Access = "allow"   // who is listed, and whom an owner has let in before
	ByPairing Access = "pairing" // like allow; strangers get a code that an owner can approve
)

// A Policy says who may write to one account.
type Policy struct {
	Access Access
	Allow  []string // platform's user ids
	Owners []string // platform's user ids
	Groups []string // platform's ids of chats in which everybody may write
}

// A Gate decides what gets into the inbox. Nobody who is not admitted leaves a trace there, and
// nothing is done for them but to offer a pairing code.
type Gate struct {
	db     *store.DB
	inbox  *bus.Inbox
	outbox *bus.Outbox
	people People
	now    func() time.Time
	log    *slog.Logger

	mu    sync.Mutex
	known map[identity]bus.Role // of the table; reloaded when it is older than rolesAge
	read  time.Time
}

type identity struct{ account, sender string }

// rolesAge is how long a change that another process made to people may go unnoticed.
const rolesAge = time.Second

// NewGate returns a Gate.
func NewGate(db *store.DB, inbox *bus.Inbox, outbox *bus.Outbox, log *slog.Logger) *Gate {
	return &Gate{db: db, inbox: inbox, outbox: outbox, now: time.Now, log: log}
}

// Intake returns what the channel of an account publishes to.
func (g *Gate) Intake(account string, p Policy) Publisher { return &intake{g, account, p} }

type intake struct {
	gate    *Gate
	account string
	policy  Policy
}

// Cursors implements [Publisher].
func (in *intake) Cursors(ctx context.Context) (map[string]string, error) {
	fail := func(err error) (map[string]string, error) {
		return nil, fmt.Errorf("channels: cursors of %s: %w", in.account, err)
	}
	rows, err := in.gate.db.Read(ctx).Query("SELECT place, cursor FROM places WHERE account = $1",
		in.account)
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	cursors := make(map[string]string)
	for rows.Next() {
		var place, cursor string
		if err := rows.Scan(&place, &cursor); err != nil {
			return fail(err)
		}
		cursors[place] = cursor
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return cursors, nil
}

// Publish implements [Publisher].
func (in *intake) Publish(ctx context.Context, b Batch) error {
	g := in.gate
	known, err := g.roles(ctx)
	if err != nil {
		return err
	}
	now := g.now()
	var admitted, strangers []bus.InboundMessage
	for _, m := range b.Messages {
		role, ok := in.policy.role(m, known)
		switch {
		case ok:
			m.Role = role
			admitted = append(admitted, m)
		case in.policy.Access == ByPairing && !m.Group:
			strangers = append(strangers, m)
		default:
			g.log.DebugContext(ctx, "message not admitted", "from", m.From.String(), "id", m.ID)
		}
	}
	var offered []bus.InboundMessage
	err = g.db.Tx(ctx, func(tx *store.Tx) error {
		offered = nil
		for _, m := range admitted {
			if _, err := g.inbox.Put(tx, m, now); err != nil {
				return err
			}
		}
		for _, m := range strangers {
			ok, err := g.offer(tx, m, now)
			if err != nil {
				return err
			}
			if ok {
				offered = append(offered, m)
			}
		}
		return in.saveCursor(tx, b.Place, b.Cursor)
	})
	if err != nil {
		return err
	}
	fault.Point("accepted")
	if len(admitted) > 0 {
		g.inbox.Wake()
	}
	for _, m := range offered {
		g.log.WarnContext(ctx, "somebody asks to be let in: see gateway people list",
			"account", m.From.Account, "sender", m.Sender.ID)
		g.outbox.Wake()
	}
	return nil
}

func (in *intake) saveCursor(tx *store.Tx, place, cursor string) error {
	if cursor == "" {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO places (account, place, cursor) VALUES ($1, $2, $3)
		ON CONFLICT (account, place) DO UPDATE SET cursor = excluded.cursor`,
		in.account, place, cursor)
	if err != nil {
		return fmt.Errorf("channels: cursor of %s: %w", in.account, err)
	}
	return nil
}

// role returns the role of m's sender. ok reports whether m gets in.
func (p *Policy) role(m bus.InboundMessage, known map[identity]bus.Role) (role bus.Role, ok bool) {
	role, ok = known[identity{m.From.Account, m.Sender.ID}]
	switch {
	case slices.Contains(p.Owners, m.Sender.ID):
		role, ok = bus.Owner, true
	case ok:
	case slices.Contains(p.Allow, m.Sender.ID), p.Access == Open:
		role, ok = bus.User, true
	}
	if m.Group {
		// What a person may in direct chats grants nothing in a room that others read.
		listed := slices.Contains(p.Groups, m.From.Chat)
		ok = m.Addressed && (listed || p.Access == Open && len(p.Groups) == 0)
		if role == "" {
			role = bus.User
		}
	}
	return role, ok
}

// offer gives the sender of m a pairing code, and reports whether they may have one.
func (g *Gate) offer(tx *store.Tx, m bus.InboundMessage, now time.Time) (bool, error) {
	code, err := g.people.request(tx, m, now)
	if err != nil || code == "" {
		return false, err
	}
	return true, g.outbox.Put(tx, bus.OutboundMessage{To: m.From, Text: fmt.Sprintf(
		"I don't know you yet. Your pairing code is `%s`, for ten minutes.\n\n"+
			"Whoever runs this gateway can let you in with\n\n`gateway people approve %s`",
		code, code)}, now)
}

// roles returns the roles of all known people.
func (g *Gate) roles(ctx context.Context) (map[identity]bus.Role, error) {
	g.mu.Lock()
	known, age := g.known, g.now().Sub(g.read)
	g.mu.Unlock()
	if known != nil && age < rolesAge {
		return known, nil
	}
	list, err := g.people.List(g.db.Read(ctx))
	if err != nil {
		return nil, err
	}
	known = make(map[identity]bus.Role, len(list))
	for _, p := range list {
		if p.Role.Valid() {
			known[identity{p.Account, p.Sender}] = p.Role
		} else { // a damaged row opens no door
			g.log.ErrorContext(ctx, "person has an unknown role and is not admitted",
				"person", p.ID, "role", string(p.Role))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known, g.read = known, g.now()
	return known, nil
}
