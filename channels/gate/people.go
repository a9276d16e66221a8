package gate

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"gateway/bus"
	"gateway/store"
)

// People keeps who is known, and who asks to be. It has no state of its own.
type People struct{}

// A Person is somebody whom an owner has let in, on one account. Who is known on several has as
// many entries, with the same ID.
type Person struct {
	ID      int64
	Name    string
	Role    bus.Role
	Account string
	Sender  string // platform's user id

	chat string // direct one, of an owner
}

// A Pairing is a stranger's wish to be let in.
type Pairing struct {
	Code    string
	Account string
	Sender  string // platform's user id
	Name    string
	Chat    string
	Expires time.Time
}

// What a pairing is bound to, so that codes can be neither guessed nor used to flood the owner.
const (
	pairingTerm = 10 * time.Minute
	maxPairings = 16 // pending ones of an account; a further one takes the place of the oldest
	maxTold     = 3  // pending ones of an account that its owners are told of by a message
	codeLength  = 8  // of 32 letters and digits: 40 bits
)

// ErrNoPairing reports a code that nobody has, or that has expired.
var ErrNoPairing = errors.New("no such pairing code, or it has expired")

// ErrNobody reports an ID that no person has.
var ErrNobody = errors.New("there is no person with this number")

// List returns the known people, the first one first.
func (People) List(q store.Queryer) ([]Person, error) {
	rows, err := q.Query(`SELECT p.id, p.name, p.role, i.account, i.sender, i.chat
		FROM people p JOIN identities i ON i.person = p.id ORDER BY p.id`)
	if err != nil {
		return nil, fmt.Errorf("gate: read people: %w", err)
	}
	defer rows.Close()
	var list []Person
	for rows.Next() {
		var p Person
		if err := rows.Scan(&p.ID, &p.Name, &p.Role, &p.Account, &p.Sender, &p.chat); err != nil {
			return nil, fmt.Errorf("gate: read people: %w", err)
		}
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("gate: read people: %w", err)
	}
	return list, nil
}

// Pending returns the pairings that wait for an owner.
func (People) Pending(q store.Queryer, now time.Time) ([]Pairing, error) {
	rows, err := q.Query(`SELECT code, account, sender, name, chat, expires_ms FROM pairings
		WHERE expires_ms > $1 ORDER BY expires_ms`, now.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("gate: read pairings: %w", err)
	}
	defer rows.Close()
	var list []Pairing
	for rows.Next() {
		var p Pairing
		var expires int64
		err := rows.Scan(&p.Code, &p.Account, &p.Sender, &p.Name, &p.Chat, &expires)
		if err != nil {
			return nil, fmt.Errorf("gate: read pairings: %w", err)
		}
		p.Expires = time.UnixMilli(expires)
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("gate: read pairings: %w", err)
	}
	return list, nil
}

// request notes that the sender of m asks to be let in, and returns the code. It returns "" if the
// sender has one already or was denied. Where too many ask, the oldest request gives way. Tell
// reports whether the owners are to be told, which only a few pending requests are worth.
func (People) request(
	tx *store.Tx, m bus.InboundMessage, now time.Time,
) (code string, tell bool, err error) {
	fail := func(err error) (string, bool, error) {
		return "", false, fmt.Errorf("gate: pair %s: %w", m.From, err)
	}
	_, err = tx.Exec("DELETE FROM pairings WHERE expires_ms <= $1", now.UnixMilli())
	if err != nil {
		return fail(err)
	}
	var pending, own, denied int
	err = tx.QueryRow(`SELECT count(*), count(CASE WHEN sender = $2 THEN 1 END),
			(SELECT count(*) FROM denied WHERE account = $1 AND sender = $2)
		FROM pairings WHERE account = $1`,
		m.From.Account, m.Sender.ID).Scan(&pending, &own, &denied)
	if err != nil {
		return fail(err)
	}
	if own > 0 || denied > 0 {
		return "", false, nil
	}
	if pending >= maxPairings {
		_, err = tx.Exec(`DELETE FROM pairings WHERE code = (SELECT code FROM pairings
			WHERE account = $1 ORDER BY expires_ms, code LIMIT 1)`, m.From.Account)
		if err != nil {
			return fail(err)
		}
	}
	code = rand.Text()[:codeLength]
	_, err = tx.Exec(`INSERT INTO pairings (code, account, sender, name, chat, expires_ms)
		VALUES ($1, $2, $3, $4, $5, $6)`, code, m.From.Account, m.Sender.ID, m.Sender.Name,
		m.From.Chat, now.Add(pairingTerm).UnixMilli())
	if err != nil {
		return fail(err)
	}
	return code, pending < maxTold, nil
}

// Approve lets the stranger with the given code in and returns the new person and their chat. If
// the gateway is not owned, by somebody whom the configuration names, its first person becomes the
// owner. It reports [ErrNoPairing].
func (p People) Approve(
	tx *store.Tx, code string, owned bool, now time.Time,
) (Person, bus.Address, error) {
	fail := func(err error) (Person, bus.Address, error) {
		return Person{}, bus.Address{}, fmt.Errorf("gate: approve: %w", err)
	}
	asks, err := p.answer(tx, code, now)
	if err != nil {
		return fail(err)
	}
	person := Person{Role: bus.User, Account: asks.Account, Sender: asks.Sender, Name: asks.Name}
	var owners int
	err = tx.QueryRow("SELECT count(*) FROM people WHERE role = $1", string(bus.Owner)).Scan(&owners)
	if err != nil {
		return fail(err)
	}
	if owners == 0 && !owned {
		person.Role = bus.Owner
	}
	chat := "" // only that of an owner matters
	if person.Role == bus.Owner {
		chat = asks.Chat
	}
	if err := p.add(tx, &person, chat, now); err != nil {
		return fail(err)
	}
	return person, bus.Address{Account: asks.Account, Chat: asks.Chat}, nil
}

// answer removes the pairing with the given code and returns it.
func (People) answer(tx *store.Tx, code string, now time.Time) (asks Pairing, err error) {
	asks.Code = strings.ToUpper(strings.TrimSpace(code))
	err = tx.QueryRow(`DELETE FROM pairings WHERE code = $1 AND expires_ms > $2
		RETURNING account, sender, name, chat`, asks.Code,
		now.UnixMilli()).Scan(&asks.Account, &asks.Sender, &asks.Name, &asks.Chat)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoPairing
	}
	return asks, err
}

// add stores a new person with an identity, and sets the ID.
func (People) add(tx *store.Tx, p *Person, chat string, now time.Time) error {
	err := tx.QueryRow("INSERT INTO people (name, role, created_ms) VALUES ($1, $2, $3) RETURNING id",
		p.Name, string(p.Role), now.UnixMilli()).Scan(&p.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO identities (account, sender, person, chat) VALUES ($1, $2, $3, $4)
		ON CONFLICT (account, sender) DO UPDATE SET person = excluded.person, chat = excluded.chat`,
		p.Account, p.Sender, p.ID, chat)
	return err
}

// meet returns the person who wrote m in a direct chat: an owner, who may be one only by the
// configuration and is then noted as a user, so that this ends with it. The chat is remembered.
func (p People) meet(tx *store.Tx, m bus.InboundMessage, now time.Time) (id int64, err error) {
	var chat string
	err = tx.QueryRow("SELECT person, chat FROM identities WHERE account = $1 AND sender = $2",
		m.From.Account, m.Sender.ID).Scan(&id, &chat)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		person := Person{Name: m.Sender.Name, Role: bus.User,
			Account: m.From.Account, Sender: m.Sender.ID}
		err = p.add(tx, &person, m.From.Chat, now)
		id = person.ID
	case err == nil && chat != m.From.Chat:
		_, err = tx.Exec("UPDATE identities SET chat = $3 WHERE account = $1 AND sender = $2",
			m.From.Account, m.Sender.ID, m.From.Chat)
	}
	if err != nil {
		return 0, fmt.Errorf("gate: meet %s: %w", m.From, err)
	}
	return id, nil
}

// demote forgets that somebody's chat with an account is that of an owner.
func (People) demote(tx *store.Tx, account, sender string) error {
	_, err := tx.Exec("UPDATE identities SET chat = '' WHERE account = $1 AND sender = $2",
		account, sender)
	if err != nil {
		return fmt.Errorf("gate: demote %s on %s: %w", sender, account, err)
	}
	return nil
}

// OwnersBeside returns a direct chat of each owner, as far as it is known, that is not the given
// one; of another account, if there is one.
func (People) OwnersBeside(q store.Queryer, a bus.Address) ([]bus.Address, error) {
	rows, err := q.Query(`SELECT person, account, chat FROM identities
		WHERE chat <> '' AND NOT (account = $1 AND chat = $2)
		ORDER BY person, CASE WHEN account = $1 THEN 1 ELSE 0 END, account`, a.Account, a.Chat)
	if err != nil {
		return nil, fmt.Errorf("gate: read people: %w", err)
	}
	return onePerPerson(rows)
}

// OwnerChats returns the direct chat of each owner with the gateway, as far as it is known: one
// for each, if there are several.
func (People) OwnerChats(q store.Queryer) ([]bus.Address, error) {
	rows, err := q.Query("SELECT person, account, chat FROM identities WHERE chat <> '' " +
		"ORDER BY person, account")
	if err != nil {
		return nil, fmt.Errorf("gate: read people: %w", err)
	}
	return onePerPerson(rows)
}

// onePerPerson reads rows of person, account and chat, and returns the first chat of each person.
func onePerPerson(rows *sql.Rows) ([]bus.Address, error) {
	defer rows.Close()
	var list []bus.Address
	for last := int64(0); rows.Next(); {
		var person int64
		var a bus.Address
		if err := rows.Scan(&person, &a.Account, &a.Chat); err != nil {
			return nil, fmt.Errorf("gate: read people: %w", err)
		}
		if person != last {
			list = append(list, a)
		}
		last = person
	}
	return list, rows.Err()
}

// owners returns the direct chats of owners with an account, as far as they are known.
func (People) owners(tx *store.Tx, account string) ([]string, error) {
	rows, err := tx.Query("SELECT chat FROM identities WHERE account = $1 AND chat <> '' "+
		"ORDER BY person", account)
	if err != nil {
		return nil, fmt.Errorf("gate: read people: %w", err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var chat string
		if err := rows.Scan(&chat); err != nil {
			return nil, fmt.Errorf("gate: read people: %w", err)
		}
		list = append(list, chat)
	}
	return list, rows.Err()
}
