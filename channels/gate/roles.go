package gate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/bus"
	"gateway/store"
)

// SetRole changes what a person may do. It reports [ErrNoPerson].
func (People) SetRole(tx *store.Tx, id int64, role bus.Role) error {
	if err := dismiss(tx, id, role); err != nil {
		return fmt.Errorf("gate: set role of person %d: %w", id, err)
	}
	n, err := tx.Exec("UPDATE people SET role = $2 WHERE id = $1", id, string(role))
	if err == nil && n == 0 {
		err = ErrNoPerson
	}
	return store.Wrap(err, "gate: set role of person %d", id)
}

// dismiss deletes the direct chats of an owner who gets another role, so that no more messages for
// owners go there. An owner by the configuration has the stored role user, and keeps their chats.
func dismiss(tx *store.Tx, id int64, role bus.Role) error {
	if role == bus.Owner {
		return nil
	}
	_, err := tx.Exec(`UPDATE identities SET chat = '' WHERE person = $1
		AND (SELECT role FROM people WHERE id = $1) = $2`, id, string(bus.Owner))
	return err
}

// DismissOwners deletes the direct chats of people whom the configuration of g no longer names as
// owners, so that no more messages for owners go there. Call it after [Gate.SetPolicy].
func DismissOwners(ctx context.Context, g *Gate) error {
	return g.db.Tx(ctx, func(tx *store.Tx) error {
		list, err := g.people.List(tx)
		for i := 0; i < len(list) && err == nil; i++ {
			p := &list[i]
			g.mu.Lock()
			policy, ok := g.policies[p.Account] // an account that is not configured may be back later
			g.mu.Unlock()
			if ok && p.chat != "" && p.Role != bus.Owner && !policy.mayOwn(p.Sender) {
				err = g.people.demote(tx, p.Account, p.Sender)
			}
		}
		return err
	})
}

// Revoke removes a person, who becomes a stranger on every account. It reports [ErrNoPerson].
func (People) Revoke(tx *store.Tx, id int64) error {
	n, err := tx.Exec("DELETE FROM people WHERE id = $1", id)
	if err == nil && n == 0 {
		err = ErrNoPerson
	}
	if err == nil {
		_, err = tx.Exec("DELETE FROM identities WHERE person = $1", id)
	}
	return store.Wrap(err, "gate: revoke person %d", id)
}

// Link merges two entries of the same human: id gets all accounts of other and keeps its role, and
// other is removed. What the gateway stores about other is then that of id: see [People.FormerIDs].
// It reports [ErrNoPerson].
func (p People) Link(tx *store.Tx, id, other int64) (err error) {
	defer func() { err = store.Wrap(err, "gate: link person %d to %d", other, id) }()
	if id == other {
		return fmt.Errorf("%w: the numbers are the same", ErrNoPerson)
	}
	var n int
	err = tx.QueryRow("SELECT count(*) FROM people WHERE id IN ($1, $2)", id, other).Scan(&n)
	if err == nil && n != 2 {
		err = ErrNoPerson
	}
	var role bus.Role
	if err == nil {
		err = tx.QueryRow("SELECT role FROM people WHERE id = $1", id).Scan(&role)
	}
	if err == nil {
		err = dismiss(tx, other, role)
	}
	if err == nil {
		_, err = tx.Exec("UPDATE identities SET person = $1, former = former || $3 WHERE person = $2",
			id, other, fmt.Sprintf(" %d", other))
	}
	if err == nil {
		_, err = tx.Exec("DELETE FROM people WHERE id = $1", other)
	}
	return err
}

// Known reports whether a person has this number.
func (People) Known(q store.Queryer, person int64) (bool, error) {
	n := 0
	err := q.QueryRow("SELECT count(*) FROM people WHERE id = $1", person).Scan(&n)
	return n > 0, store.Wrap(err, "gate: read person %d", person)
}

// Holders returns the people who have a number or had it before they were linked.
func (People) Holders(q store.Queryer, number int64) ([]int64, error) {
	return store.Collect(q, "gate: read links", func(scan store.Scan, id *int64) error {
		return scan(id)
	}, `SELECT id FROM people WHERE id = $1 UNION
		SELECT person FROM identities WHERE former || ' ' LIKE '% ' || $1 || ' %'`, number)
}

// SharedIDs returns the numbers that the other identities of a person had, which the given identity
// may also have had.
func (p People) SharedIDs(
	q store.Queryer, person int64, account, sender string,
) ([]int64, error) {
	return formerIDs(q, person, " AND NOT (account = $2 AND sender = $3)", account, sender)
}

// FormerIDs returns the numbers of the people who were linked with a person. Until they write
// again, their conversations and their memory have the former number.
func (People) FormerIDs(q store.Queryer, person int64) ([]int64, error) {
	return formerIDs(q, person, "")
}

func formerIDs(q store.Queryer, person int64, where string, args ...any) (list []int64, err error) {
	err = store.Each(q, "gate: read links", func(scan store.Scan) error {
		var former string
		err := scan(&former)
		for number := range strings.FieldsSeq(former) {
			id, wrong := strconv.ParseInt(number, 10, 64)
			if wrong != nil {
				return wrong
			}
			if id != person { // see split
				list = append(list, id)
			}
		}
		return err
	}, "SELECT former FROM identities WHERE person = $1 AND former <> ''"+where,
		append([]any{person}, args...)...)
	slices.Sort(list)
	return slices.Compact(list), err
}

// linkedFrom returns the last former number of an identity, or 0 if the identity was not linked
// with another person since it got its current number.
func linkedFrom(former string, person int64) int64 {
	last, _ := strconv.ParseInt(former[strings.LastIndexByte(former, ' ')+1:], 10, 64)
	if last == person {
		return 0
	}
	return last
}

// PrepareUnlink reserves a number for the new person and returns what [People.Unlink] will return.
// Until Unlink, that number is a former number of the present person: data that has the number
// already still belongs to the present person.
func (p People) PrepareUnlink(
	tx *store.Tx, account, sender string, now time.Time,
) (person Person, before int64, err error) {
	person, before, err = p.linked(tx, account, sender)
	if err == nil { // the number will not be used again
		err = tx.QueryRow(`INSERT INTO people (name, role, created_ms) VALUES ('', '', $1)
			RETURNING id`, now.UnixMilli()).Scan(&person.ID)
	}
	if err == nil {
		_, err = tx.Exec("DELETE FROM people WHERE id = $1", person.ID)
	}
	if err == nil { // the last number stays the last: see linkedFrom
		_, err = tx.Exec(`UPDATE identities SET former = $3 || former
			WHERE account = $1 AND sender = $2`, account, sender, fmt.Sprintf(" %d", person.ID))
	}
	return person, before, store.Wrap(err, "gate: unlink %s on %s", sender, account)
}

// Unlink separates an identity from the person to whom it was linked, and returns the number of
// that person. It gets a new person with the role user, and a former number only if nobody else has
// that. The new person has the number id, from [People.PrepareUnlink], unless that is 0. Unlink
// reports [ErrNoPerson] and [ErrNotLinked].
func (p People) Unlink(
	tx *store.Tx, account, sender string, id int64, now time.Time,
) (person Person, before int64, err error) {
	person, before, err = p.linked(tx, account, sender)
	if person.ID = id; err == nil {
		err = p.split(tx, &person, before, now)
	}
	return person, before, store.Wrap(err, "gate: unlink %s on %s", sender, account)
}

// linked returns the person to whom an identity is linked, and the user, still without a number,
// that it becomes if it is unlinked.
func (People) linked(
	tx *store.Tx, account, sender string,
) (person Person, before int64, err error) {
	person = Person{Role: bus.User, Account: account, Sender: sender}
	var others int
	err = tx.QueryRow(`SELECT p.id, p.name, (SELECT count(*) FROM identities WHERE person = p.id) - 1
		FROM identities i JOIN people p ON p.id = i.person WHERE i.account = $1 AND i.sender = $2`,
		account, sender).Scan(&before, &person.Name, &others)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = ErrNoPerson
	case err == nil && others == 0:
		err = ErrNotLinked
	}
	return person, before, err
}

// split gives the identity of p, which belongs to the person before, a new person. It removes the
// former numbers of the identity that others have, too. The last one is then the number of the new
// person: see linkedFrom.
func (p People) split(tx *store.Tx, person *Person, before int64, now time.Time) error {
	if err := p.add(tx, person, "", now); err != nil {
		return err
	}
	own, err := p.FormerIDs(tx, person.ID)
	if err != nil {
		return err
	}
	others, err := p.FormerIDs(tx, before)
	if err != nil {
		return err
	}
	others = append(others, before) // also a former number of p, if the others were linked to p
	former := ""
	for _, id := range own {
		if !slices.Contains(others, id) {
			former += fmt.Sprintf(" %d", id)
		}
	}
	former += fmt.Sprintf(" %d", person.ID)
	_, err = tx.Exec("UPDATE identities SET former = $1 WHERE person = $2", former, person.ID)
	return err
}
