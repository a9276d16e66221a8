// Package audit keeps who has decided what: approvals and denials of tool calls, who was let in and
// with which role, groups, halts, and changes of the rules in the configuration.
//
// An [Entry] is written in the transaction of what it is about, so that none is missing.
//
// Tables: audits.
package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gateway/bus"
	"gateway/store"
)

// Migration creates the table of this package.
var Migration = store.Migration{Package: "audit", Steps: []string{`
CREATE TABLE audits (
	id      IDENTITY PRIMARY KEY,
	at_ms   BIGINT NOT NULL,
	action  TEXT NOT NULL,
	about   TEXT NOT NULL, -- a tool call, a person, a group
	whom    BIGINT NOT NULL, -- person whom it is about; or 0
	by_whom TEXT NOT NULL, -- account/sender, or what is no person
	name    TEXT NOT NULL, -- of by_whom
	person  BIGINT NOT NULL, -- by_whom, if known; or 0
	account TEXT NOT NULL, -- with chat: where; or ''
	chat    TEXT NOT NULL,
	rules   TEXT NOT NULL -- of a change of the rules: what they are now; see Rules
);`}}

// The authors of what no person in a chat has done.
const (
	CommandLine   = "the command line"
	Configuration = "the configuration file"
)

// An Entry says that somebody has decided something.
type Entry struct {
	ID     int64
	Time   time.Time
	Action string // such as "approved"
	About  string // what it is about, one line; or ""
	Whom   int64  // the person whom it is about; or 0
	By     string // account/sender, CommandLine or Configuration
	Name   string // of By, if it is a person
	Person int64  // likewise; or 0
	Where  bus.Address
}

// Of returns the entry for what the sender of m has done in its chat.
func Of(m bus.InboundMessage, action, about string) Entry {
	return Entry{Action: action, About: about, By: m.From.Account + "/" + m.Sender.ID,
		Name: m.Sender.Name, Person: m.Person, Where: m.From}
}

// maxAbout is how much of what an entry is about is kept, in runes.
const maxAbout = 200

// Add writes e. The time is now.
func Add(tx *store.Tx, e Entry, now time.Time) error { return add(tx, e, "", now) }

func add(tx *store.Tx, e Entry, rules string, now time.Time) error {
	about := []rune(strings.Join(strings.Fields(strings.ReplaceAll(e.About, "`", "")), " "))
	if len(about) > maxAbout {
		about = append(about[:maxAbout], '…')
	}
	_, err := tx.Exec(`INSERT INTO audits
		(at_ms, action, about, whom, by_whom, name, person, account, chat, rules)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, now.UnixMilli(), e.Action, string(about),
		e.Whom, e.By, e.Name, e.Person, e.Where.Account, e.Where.Chat, rules)
	if err != nil {
		return fmt.Errorf("audit: write: %w", err)
	}
	return nil
}

// List returns entries, the newest first: at most so many, after those that are skipped.
func List(q store.Queryer, most, skipped int) ([]Entry, error) {
	return store.Collect(q, "audit: read", func(scan store.Scan, e *Entry) error {
		var at int64
		err := scan(&e.ID, &at, &e.Action, &e.About, &e.Whom, &e.By, &e.Name, &e.Person,
			&e.Where.Account, &e.Where.Chat)
		e.Time = time.UnixMilli(at)
		return err
	}, `SELECT id, at_ms, action, about, whom, by_whom, name, person, account, chat FROM audits
		ORDER BY id DESC LIMIT $1 OFFSET $2`, most, skipped)
}

// A Rules maps keys of the configuration that are rules to what tells their values apart.
type Rules map[string]string

// readRules returns the rules that were noted last, nil if none were.
func readRules(q store.Queryer) (last Rules, err error) {
	var text string
	err = q.QueryRow(`SELECT COALESCE((SELECT rules FROM audits WHERE rules <> ''
		ORDER BY id DESC LIMIT 1), '')`).Scan(&text)
	if err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &last)
	}
	if err != nil {
		return nil, fmt.Errorf("audit: read rules: %w", err)
	}
	return last, nil
}

// SameRules reports whether the rules are those that were noted last.
func SameRules(q store.Queryer, now Rules) (bool, error) {
	last, err := readRules(q)
	return maps.Equal(last, now), err
}

// NoteRules writes an entry that names the keys whose values have changed since the last call, also
// one of an earlier process. The first call has nothing to compare with.
func NoteRules(tx *store.Tx, now Rules, at time.Time) error {
	before, err := readRules(tx)
	if err != nil {
		return err
	}
	e := Entry{Action: "rules in force", By: Configuration}
	if before != nil {
		e.Action, e.About = "rules changed", strings.Join(differing(before, now), ", ")
	}
	state, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return add(tx, e, string(state), at)
}

// differing returns the keys that differ, sorted.
func differing(a, b Rules) (keys []string) {
	for key := range a {
		if a[key] != b[key] {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Prune deletes entries from before a time: see [store.Pruning.Step]. What the rules are stays.
func Prune(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "audits", Time: "at_ms",
		Over: "id <> COALESCE((SELECT max(id) FROM audits WHERE rules <> ''), 0)"}.
		Step(tx, before, after)
}

// Erase removes what entries say about a person, 0 for none, and what was decided in chats. That
// something was decided stays.
func Erase(tx *store.Tx, person int64, chats []bus.Address) error {
	if person != 0 {
		_, err := tx.Exec("UPDATE audits SET about = '', whom = 0 WHERE whom = $1", person)
		if err == nil {
			_, err = tx.Exec("UPDATE audits SET about = '', by_whom = '', name = '', person = 0, "+
				"account = '', chat = '' WHERE person = $1", person)
		}
		if err != nil {
			return fmt.Errorf("audit: erase person %d: %w", person, err)
		}
	}
	for _, a := range chats {
		_, err := tx.Exec("UPDATE audits SET about = '', account = '', chat = '' "+
			"WHERE account = $1 AND chat = $2", a.Account, a.Chat)
		if err != nil {
			return fmt.Errorf("audit: erase chat %s: %w", a, err)
		}
	}
	return nil
}

// Author returns who has decided, for people.
func (e Entry) Author() string {
	if e.Name != "" {
		return fmt.Sprintf("%s (%s)", e.Name, e.By)
	}
	return cmp.Or(e.By, "somebody who was forgotten")
}
