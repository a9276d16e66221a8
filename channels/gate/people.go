package gate

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"time"

	"gateway/bus"
	"gateway/store"
)

// People is the tables of approved people and pairing requests. It has no state of its own.
type People struct{}

// A Person is a person whom an owner has approved, on one account. A person with several accounts
// has an entry for each, with the same ID.
type Person struct {
	ID      int64
	Name    string
	Role    bus.Role
	Account string
	Sender  string // platform's user id

	chat string // the direct chat, for an owner
}

// A Pairing is a stranger's request for approval.
type Pairing struct {
	Code    string
	Account string
	Sender  string // platform's user id
	Name    string
	Chat    string
	Expires time.Time
}

// Limits of pairings, so that nobody can guess codes or flood the owners with requests.
const (
	pairingTerm = 10 * time.Minute
	maxPairings = 16 // pending requests of an account; one more replaces the oldest
	maxTold     = 3  // pending requests of an account about which owners get a message
	codeLength  = 8  // characters, of 32 letters and digits: 40 bits
)

// ErrNoPairing reports a code that does not exist or has expired.
var ErrNoPairing = errors.New("no such pairing code, or it has expired")

// ErrNoPerson reports that no person has this number, or that an id on an account belongs to
// nobody.
var ErrNoPerson = errors.New("no person has this number")

// ErrNotLinked reports a person with a single account.
var ErrNotLinked = errors.New("this account is not linked to another one")

// List returns the approved people, earliest first.
func (People) List(q store.Queryer) ([]Person, error) {
	return store.Collect(q, "gate: read people", func(scan store.Scan, p *Person) error {
		return scan(&p.ID, &p.Name, &p.Role, &p.Account, &p.Sender, &p.chat)
	}, `SELECT p.id, p.name, p.role, i.account, i.sender, i.chat
		FROM people p JOIN identities i ON i.person = p.id ORDER BY p.id`)
}

// Pending returns the pending requests.
func (People) Pending(q store.Queryer, now time.Time) ([]Pairing, error) {
	return store.Collect(q, "gate: read pairings", func(scan store.Scan, p *Pairing) error {
		var expires int64
		err := scan(&p.Code, &p.Account, &p.Sender, &p.Name, &p.Chat, &expires)
		p.Expires = time.UnixMilli(expires)
		return err
	}, `SELECT code, account, sender, name, chat, expires_ms FROM pairings
		WHERE expires_ms > $1 ORDER BY expires_ms`, now.UnixMilli())
}

// requestPairing stores the pairing request of the sender of m and returns its code. It returns ""
// if the sender already has a code or was denied. If too many requests are pending, it removes the
// oldest. tell reports whether few enough are pending to send the owners a message.
func (People) requestPairing(
	tx *store.Tx, m bus.InboundMessage, now time.Time,
) (code string, tell bool, err error) {
	defer func() { err = store.Wrap(err, "gate: pair %s", m.From) }()
	_, err = tx.Exec("DELETE FROM pairings WHERE expires_ms <= $1", now.UnixMilli())
	if err != nil {
		return "", false, err
	}
	var pending, own, denied int
	err = tx.QueryRow(`SELECT count(*), count(CASE WHEN sender = $2 THEN 1 END),
			(SELECT count(*) FROM denied WHERE account = $1 AND sender = $2)
		FROM pairings WHERE account = $1`,
		m.From.Account, m.Sender.ID).Scan(&pending, &own, &denied)
	if err != nil || own > 0 || denied > 0 {
		return "", false, err
	}
	if pending >= maxPairings {
		_, err = tx.Exec(`DELETE FROM pairings WHERE code = (SELECT code FROM pairings
			WHERE account = $1 ORDER BY expires_ms, code LIMIT 1)`, m.From.Account)
		if err != nil {
			return "", false, err
		}
	}
	code = rand.Text()[:codeLength]
	_, err = tx.Exec(`INSERT INTO pairings (code, account, sender, name, chat, expires_ms)
		VALUES ($1, $2, $3, $4, $5, $6)`, code, m.From.Account, m.Sender.ID, m.Sender.Name,
		m.From.Chat, now.Add(pairingTerm).UnixMilli())
	return code, pending < maxTold, err
}

// Approve approves the stranger with the given code and returns the new person and their chat.
// owned says that the configuration names an owner; if not, the first person becomes the owner. It
// reports [ErrNoPairing].
func (p People) Approve(
	tx *store.Tx, code string, owned bool, now time.Time,
) (person Person, _ bus.Address, err error) {
	pairing, err := p.removePairing(tx, code, now)
	person = Person{Role: bus.User, Account: pairing.Account, Sender: pairing.Sender,
		Name: pairing.Name}
	var owners int
	if err == nil {
		err = tx.QueryRow("SELECT count(*) FROM people WHERE role = $1", string(bus.Owner)).
			Scan(&owners)
	}
	chat := "" // needed for owners only
	if owners == 0 && !owned {
		person.Role, chat = bus.Owner, pairing.Chat
	}
	if err == nil {
		err = p.add(tx, &person, chat, now)
	}
	return person, bus.Address{Account: pairing.Account, Chat: pairing.Chat},
		store.Wrap(err, "gate: approve")
}

// removePairing removes the request with the given code and returns it.
func (People) removePairing(tx *store.Tx, code string, now time.Time) (pairing Pairing, err error) {
	pairing.Code = strings.ToUpper(strings.TrimSpace(code))
	err = tx.QueryRow(`DELETE FROM pairings WHERE code = $1 AND expires_ms > $2
		RETURNING account, sender, name, chat`, pairing.Code,
		now.UnixMilli()).Scan(&pairing.Account, &pairing.Sender, &pairing.Name, &pairing.Chat)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoPairing
	}
	return pairing, err
}

// add stores a new person with an identity, and sets p.ID if it is 0. A request of theirs is no
// longer pending: otherwise its approval would make them yet another person.
func (People) add(tx *store.Tx, p *Person, chat string, now time.Time) error {
	id := sql.NullInt64{Int64: p.ID, Valid: p.ID != 0}
	err := tx.QueryRow(`INSERT INTO people (id, name, role, created_ms) VALUES ($1, $2, $3, $4)
		RETURNING id`, id, p.Name, string(p.Role), now.UnixMilli()).Scan(&p.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO identities (account, sender, person, chat) VALUES ($1, $2, $3, $4)
		ON CONFLICT (account, sender) DO UPDATE SET person = excluded.person, chat = excluded.chat`,
		p.Account, p.Sender, p.ID, chat)
	if err == nil {
		_, err = tx.Exec("DELETE FROM pairings WHERE account = $1 AND sender = $2", p.Account, p.Sender)
	}
	return err
}

// noteOwner sets the numbers of the owner who wrote m in a direct chat, and stores that chat. An
// owner named only in the configuration is stored as a user, so that they are no longer an owner
// once the configuration does not name them.
func (p People) noteOwner(tx *store.Tx, m *bus.InboundMessage, now time.Time) error {
	var chat, former string
	err := tx.QueryRow(`SELECT person, chat, former FROM identities
		WHERE account = $1 AND sender = $2`,
		m.From.Account, m.Sender.ID).Scan(&m.Person, &chat, &former)
	m.Origin.Former = linkedFrom(former, m.Person)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		person := Person{Name: m.Sender.Name, Role: bus.User,
			Account: m.From.Account, Sender: m.Sender.ID}
		err = p.add(tx, &person, m.From.Chat, now)
		m.Person = person.ID
	case err == nil && chat != m.From.Chat:
		_, err = tx.Exec("UPDATE identities SET chat = $3 WHERE account = $1 AND sender = $2",
			m.From.Account, m.Sender.ID, m.From.Chat)
	}
	return store.Wrap(err, "gate: meet %s", m.From)
}

// demote deletes the direct chat of a person who is no longer an owner.
func (People) demote(tx *store.Tx, account, sender string) error {
	_, err := tx.Exec("UPDATE identities SET chat = '' WHERE account = $1 AND sender = $2",
		account, sender)
	return store.Wrap(err, "gate: demote %s on %s", sender, account)
}

// OwnersBeside returns one direct chat of each owner whose chats are known: another chat than a,
// and on another account than a's if there is one. It uses only accounts for which served holds.
func (People) OwnersBeside(
	q store.Queryer, a bus.Address, served func(account string) bool,
) ([]bus.Address, error) {
	return onePerPerson(q, served, `SELECT person, account, chat FROM identities
		WHERE chat <> '' AND NOT (account = $1 AND chat = $2)
		ORDER BY person, CASE WHEN account = $1 THEN 1 ELSE 0 END, account`, a.Account, a.Chat)
}

// OwnerChats returns one direct chat of each owner whose chats are known, on the accounts of g. A
// message to another account would wait until that is configured again.
func OwnerChats(q store.Queryer, g *Gate) ([]bus.Address, error) {
	return g.people.OwnersBeside(q, bus.Address{}, func(account string) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		_, ok := g.policies[account]
		return ok
	})
}

// onePerPerson reads rows with person, account and chat, and returns the first chat of each person
// on an account for which served holds.
func onePerPerson(
	q store.Queryer, served func(account string) bool, query string, args ...any,
) (list []bus.Address, err error) {
	last := int64(0)
	err = store.Each(q, "gate: read people", func(scan store.Scan) error {
		var person int64
		var a bus.Address
		if err := scan(&person, &a.Account, &a.Chat); err != nil {
			return err
		}
		if person != last && served(a.Account) {
			list, last = append(list, a), person
		}
		return nil
	}, query, args...)
	return list, err
}

// owners returns the known direct chats of an account's owners.
func (People) owners(tx *store.Tx, account string) ([]bus.Address, error) {
	return store.Collect(tx, "gate: read people", func(scan store.Scan, a *bus.Address) error {
		a.Account = account
		return scan(&a.Chat)
	}, "SELECT chat FROM identities WHERE account = $1 AND chat <> '' ORDER BY person", account)
}
