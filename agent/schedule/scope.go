package schedule

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// Zone returns the time zone that the people of a scope have set, or nil.
func Zone(q store.Queryer, of memory.Scope) (*time.Location, error) {
	var name string
	err := q.QueryRow("SELECT zone FROM zones WHERE scope = $1", string(of)).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	var loc *time.Location
	if err == nil {
		loc, err = time.LoadLocation(name)
	}
	return loc, store.Wrap(err, "schedule: zone of %s", of)
}

// ZoneOf returns the time zone of a scope, or the default zone.
func (s Store) ZoneOf(q store.Queryer, of memory.Scope) (*time.Location, error) {
	loc, err := Zone(q, of)
	return cmp.Or(loc, s.Location, time.UTC), err
}

// SetZone sets the time zone of a scope by its IANA name. Existing jobs keep theirs.
func SetZone(tx *store.Tx, of memory.Scope, name string) error {
	_, err := tx.Exec(`INSERT INTO zones (scope, zone) VALUES ($1, $2)
		ON CONFLICT (scope) DO UPDATE SET zone = excluded.zone`, string(of), name)
	return store.Wrap(err, "schedule: set zone of %s", of)
}

// MoveScope moves the jobs and the time zone of a scope to another one. The other scope
// keeps its own zone, if it has one.
func (s Store) MoveScope(tx *store.Tx, from, to memory.Scope) error {
	// A scope has one heartbeat. If both have one, that of to stays.
	if err := eraseJobs(tx, `SELECT id FROM jobs WHERE kind = 'heartbeat' AND scope = $1
		AND EXISTS (SELECT 1 FROM jobs WHERE kind = 'heartbeat' AND scope = $2)`,
		string(from), string(to)); err != nil {
		return err
	}
	for _, query := range []string{"UPDATE jobs SET scope = $2 WHERE scope = $1",
		`UPDATE zones SET scope = $2 WHERE scope = $1
			AND NOT EXISTS (SELECT 1 FROM zones WHERE scope = $2)`,
	} {
		if _, err := tx.Exec(query, string(from), string(to)); err != nil {
			return fmt.Errorf("schedule: move %s: %w", from, err)
		}
	}
	// A person whose direct chat was unknown has one now.
	if to.Person() != 0 {
		_, err := tx.Exec(`UPDATE jobs SET person = $2 WHERE scope = $1 AND person = 0
			AND in_group = 0`, string(to), to.Person())
		if err != nil {
			return fmt.Errorf("schedule: move %s: %w", from, err)
		}
	}
	if from.Person() == 0 || to.Person() == 0 {
		return nil
	}
	// Jobs that the first person has created in groups now belong to the second.
	_, err := tx.Exec("UPDATE jobs SET person = $2 WHERE person = $1", from.Person(),
		to.Person())
	return store.Wrap(err, "schedule: move %s", from)
}

// MoveSender gives the jobs of a person that somebody has set up on an account to another person.
// Jobs of direct chats get that person's memory. A heartbeat is deleted, because it is about the
// memory of the first person, who gets another one elsewhere.
func MoveSender(tx *store.Tx, account, sender string, from, to int64) error {
	list, err := jobs(tx, "j.person = $1 AND j.account = $2 ORDER BY j.id", from, account)
	for i := 0; i < len(list) && err == nil; i++ {
		j := &list[i]
		if !j.Group {
			j.Scope = memory.OfPerson(to)
		}
		switch {
		case j.Sender.ID != sender:
		case j.Kind == Heartbeat && !j.Group:
			err = eraseJobs(tx, "SELECT id FROM jobs WHERE id = $1", j.ID)
		default:
			_, err = tx.Exec("UPDATE jobs SET person = $2, scope = $3 WHERE id = $1", j.ID, to,
				string(j.Scope))
		}
	}
	return store.Wrap(err, "schedule: move the jobs of %s on %s", sender, account)
}

// EraseScope deletes all jobs of a scope with their runs, and its time zone.
func EraseScope(tx *store.Tx, of memory.Scope) error {
	if err := eraseJobs(tx, "SELECT id FROM jobs WHERE scope = $1", string(of)); err != nil {
		return err
	}
	_, err := tx.Exec("DELETE FROM zones WHERE scope = $1", string(of))
	return store.Wrap(err, "schedule: erase %s", of)
}

// EraseChat deletes all jobs whose outcome goes to a chat or one of its threads.
func EraseChat(tx *store.Tx, a bus.Address) error {
	return eraseJobs(tx, "SELECT id FROM jobs WHERE account = $1 AND chat = $2", a.Account,
		a.Chat)
}

// ErasePerson deletes all jobs that a person has created, also in groups.
func ErasePerson(tx *store.Tx, person int64) error {
	return eraseJobs(tx, "SELECT id FROM jobs WHERE person = $1 AND person <> 0", person)
}

// CountDue returns the number of overdue jobs and retries.
func CountDue(q store.Queryer, now time.Time) (n int, err error) {
	err = q.QueryRow(`SELECT (SELECT count(*) FROM jobs
			WHERE state = 'active' AND next_ms > 0 AND next_ms <= $1)
		+ (SELECT count(*) FROM runs WHERE state = 'waiting' AND try_ms > 0 AND try_ms <= $1)`,
		toMillis(now)).Scan(&n)
	return n, store.Wrap(err, "schedule: count what is due")
}

// eraseJobs deletes the jobs that a query selects, with their runs.
func eraseJobs(tx *store.Tx, ids string, args ...any) error {
	for _, query := range []string{
		"DELETE FROM runs WHERE job IN (" + ids + ")", "DELETE FROM jobs WHERE id IN (" + ids + ")",
	} {
		if _, err := tx.Exec(query, args...); err != nil {
			return fmt.Errorf("schedule: erase jobs: %w", err)
		}
	}
	return nil
}

// MoveChat moves the jobs of a chat and its threads to another chat.
func MoveChat(tx *store.Tx, from, to bus.Address) error {
	_, err := tx.Exec(`UPDATE jobs SET account = $3, chat = $4 WHERE account = $1 AND chat = $2`,
		from.Account, from.Chat, to.Account, to.Chat)
	return store.Wrap(err, "schedule: move %s", from)
}

// A HeartbeatTarget is the person or group that gets a heartbeat.
type HeartbeatTarget struct {
	Scope  memory.Scope
	To     bus.Address // gets the answer
	Sender bus.Sender
	Person int64
	Role   bus.Role
	Group  bool
	Title  string
}

// SetHeartbeat sets the interval of a heartbeat. A new heartbeat first comes after one
// interval.
func (s Store) SetHeartbeat(
	tx *store.Tx, b HeartbeatTarget, every time.Duration, now time.Time,
) error {
	j := Job{Name: "heartbeat", Kind: Heartbeat, Text: "Look after what stands in HEARTBEAT.md.",
		To: b.To, Sender: b.Sender, Person: b.Person, Role: b.Role, Group: b.Group, Title: b.Title,
		Scope: b.Scope, OwnSession: true,
		When:  When{every: every, anchor: now.UnixMilli(), loc: time.UTC},
		State: Active, Created: now}
	j.Next, _ = j.When.Next(now) // an interval always has a next time
	list, err := jobs(tx, "j.scope = $1 AND j.kind = 'heartbeat'", string(b.Scope))
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return insertJob(tx, &j)
	}
	old := list[0]
	if old.When.every == every {
		j.When, j.Next = old.When, old.Next
		if b == (HeartbeatTarget{old.Scope, old.To, old.Sender, old.Person, old.Role, old.Group,
			old.Title}) {
			return nil
		}
	}
	rule, err := j.When.encode()
	if err != nil {
		return fmt.Errorf("schedule: heartbeat of %s: %w", b.Scope, err)
	}
	sender, err := json.Marshal(j.Sender)
	if err == nil {
		_, err = tx.Exec(`UPDATE jobs SET rule = $2, account = $3, chat = $4, thread = $5,
			sender = $6, person = $7, role = $8, in_group = $9, title = $10, next_ms = $11
			WHERE id = $1`, old.ID, rule, j.To.Account, j.To.Chat, j.To.Thread, string(sender),
			j.Person, string(j.Role), j.Group, j.Title, toMillis(j.Next))
	}
	return store.Wrap(err, "schedule: heartbeat of %s", b.Scope)
}
