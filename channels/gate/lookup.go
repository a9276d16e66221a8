package gate

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/store"
)

// SetPolicy says from now on who may write to an account.
func (g *Gate) SetPolicy(account string, p Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policies[account] = p
}

// policy returns who may write to an account: nobody to one that there is not.
func (g *Gate) policy(account string) Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policies[account]
}

// judge decides on m by what is known, with the groups that have moved, of which the gate is told
// just now: what is written in them since comes in the same batch. It returns what is known of the
// sender.
func (g *Gate) judge(
	q store.Queryer, p Policy, m *bus.InboundMessage, moved map[string]string, most time.Duration,
) (known, verdict, error) {
	who, err := g.look(q, writer{m.From.Account, m.From.Chat, m.Sender.ID}, most)
	if err != nil {
		return who, ignored, err
	}
	m.Before = who.before
	if m.Before == "" {
		m.Before = moved[m.From.Chat]
	}
	return who, p.judge(m, who), nil
}

// Standing reports whether the sender of m may write to its conversation now, and sets the Person
// and the Role of m to what they are now: what somebody has asked for may be done later, when they
// may less, or nothing.
func (g *Gate) Standing(q store.Queryer, m *bus.InboundMessage) (bool, error) {
	m.Addressed = true
	_, v, err := g.judge(q, g.policy(m.From.Account), m, nil, rolesAge)
	return err == nil && v == admitted, err
}

// A writer is somebody who writes to a chat of an account.
type writer struct{ account, chat, sender string }

// A known is what the gate knows of a writer.
type known struct {
	person int64
	role   bus.Role
	chat   string // direct one, if it is that of an owner
	before string // earlier id of the group in which they write
}

// A seen is what was known of a writer at a time.
type seen struct {
	known
	at time.Time
}

// look returns what the gate knows of a writer, which is younger than most. It asks the tables for
// nobody else: thousands of people are known to some gateways.
func (g *Gate) look(q store.Queryer, w writer, most time.Duration) (known, error) {
	g.mu.Lock()
	now := g.now()
	if age := now.Sub(g.read); age < 0 || age >= rolesAge {
		g.known, g.read = make(map[writer]seen), now
		g.times++
	}
	times := g.times
	who, ok := g.known[w]
	g.mu.Unlock()
	if ok && now.Sub(who.at) < most {
		return who.known, nil
	}
	found, err := g.ask(q, w)
	if err != nil {
		return known{}, err
	}
	if _, ok := q.(*store.Tx); ok {
		return found, nil // what it sees may never be committed
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.times == times { // else it may be from before a change
		g.known[w] = seen{found, now}
	}
	return found, nil
}

// Forget has the gate look everybody up again: somebody was let in, turned away or given a role.
func (g *Gate) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = make(map[writer]seen)
	g.times++
}

func (g *Gate) ask(q store.Queryer, w writer) (who known, err error) {
	err = q.QueryRow(`SELECT p.id, p.role, i.chat FROM identities i JOIN people p ON p.id = i.person
		WHERE i.account = $1 AND i.sender = $2`, w.account, w.sender).
		Scan(&who.person, &who.role, &who.chat)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return who, fmt.Errorf("gate: read people: %w", err)
	}
	if err == nil && !who.role.Valid() { // a damaged row opens no door
		g.log.Error("person has an unknown role and is not admitted",
			"person", who.person, "role", string(who.role))
		who = known{}
	}
	err = q.QueryRow("SELECT before FROM moves WHERE account = $1 AND chat = $2",
		w.account, w.chat).Scan(&who.before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return who, fmt.Errorf("gate: read moves: %w", err)
	}
	return who, nil
}

// forget makes the gate look again.
func (g *Gate) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read = time.Time{}
}
