// Package audit records decisions and their authors: approvals and denials of tool calls,
// admissions and roles of people, groups, halts, and changes of the rules in the configuration.
//
// The transaction that makes a decision also writes its [Entry], so no entry is missing.
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
	"gateway/store/plaintext"
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
);`, `
-- For erasing and linking people, which must not read all entries.
CREATE INDEX audits_whom ON audits (whom) WHERE whom <> 0;
CREATE INDEX audits_person ON audits (person) WHERE person <> 0;
CREATE INDEX audits_author ON audits (by_whom, person);
CREATE INDEX audits_chat ON audits (account, chat) WHERE chat <> '';`}}

// The authors of entries that no person in a chat caused.
const (
	CommandLine   = "the command line"
	Configuration = "the configuration file"
)

// An Entry records one decision.
type Entry struct {
	ID     int64
	Time   time.Time
	Action string // such as "approved"
	About  string // subject in one line, or ""
	Whom   int64  // the person that the decision is about, or 0
	By     string // the author: account/sender, CommandLine or Configuration
	Name   string // name of the author if it is a person
	Person int64  // id of the author if it is a person, else 0
	Where  bus.Address
}

// NewEntry returns the entry for a decision that the sender of m made in the chat of m.
func NewEntry(m bus.InboundMessage, action, about string) Entry {
	return Entry{Action: action, About: about, By: m.From.Account + "/" + m.Sender.ID,
		Name: m.Sender.Name, Person: m.Person, Where: m.From}
}

// maxAbout is the longest Entry.About that is stored, in runes.
const maxAbout = 200

// Add writes e with the time now. It shortens About to 200 runes.
func Add(tx *store.Tx, e Entry, now time.Time) error { return add(tx, e, "", now) }

func add(tx *store.Tx, e Entry, rules string, now time.Time) error {
	about := plaintext.Line(strings.ReplaceAll(e.About, "`", ""), maxAbout)
	_, err := tx.Exec(`INSERT INTO audits
		(at_ms, action, about, whom, by_whom, name, person, account, chat, rules)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, now.UnixMilli(), e.Action, about,
		e.Whom, e.By, e.Name, e.Person, e.Where.Account, e.Where.Chat, rules)
	return store.Wrap(err, "audit: write")
}

// List returns at most most entries, newest first. It skips the first skipped ones.
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

// Last returns the newest time at which the author of e did the same, or the zero time for never.
func Last(q store.Queryer, e Entry) (time.Time, error) {
	var at int64
	err := q.QueryRow(`SELECT COALESCE(max(at_ms), 0) FROM audits
		WHERE action = $1 AND (by_whom = $2 OR person = $3 AND person <> 0)`,
		e.Action, e.By, e.Person).Scan(&at)
	if err != nil || at == 0 {
		return time.Time{}, err
	}
	return time.UnixMilli(at), nil
}

// Rules maps each configuration key that is a rule to a text that differs if its value differs.
type Rules map[string]string

// readRules returns the rules that were recorded last, or nil.
func readRules(q store.Queryer) (last Rules, err error) {
	var text string
	err = q.QueryRow(`SELECT COALESCE((SELECT rules FROM audits WHERE rules <> ''
		ORDER BY id DESC LIMIT 1), '')`).Scan(&text)
	if err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &last)
	}
	return last, store.Wrap(err, "audit: read rules")
}

// SameRules reports whether now equals the rules that were recorded last.
func SameRules(q store.Queryer, now Rules) (bool, error) {
	last, err := readRules(q)
	return maps.Equal(last, now), err
}

// NoteRules writes an entry that names the keys whose values have changed since the last call,
// even if an earlier process made that call. The first entry names no keys.
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

// differing returns the sorted keys whose values differ.
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

// Prune deletes entries older than before. It keeps the newest entry with rules, because
// NoteRules compares with it. See [store.Pruning.Step].
func Prune(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return store.Pruning{Table: "audits", Time: "at_ms",
		Over: "id <> COALESCE((SELECT max(id) FROM audits WHERE rules <> ''), 0)"}.
		Step(tx, before, after)
}

// The conditions of entries. The database finds the entries by an index.
const (
	ofWhom   = " WHERE whom = $1 AND whom <> 0"
	ofPerson = " WHERE person = $1 AND person <> 0"
	ofAuthor = " WHERE by_whom = $1 AND person = $2"
	ofChat   = " WHERE account = $1 AND chat = $2 AND chat <> ''"
)

// Erase removes the personal content of entries about or by a person (0: nobody), and the subject
// and the chat of entries from chats. The entries themselves stay.
func Erase(tx *store.Tx, person int64, chats []bus.Address) error {
	_, err := tx.Exec("UPDATE audits SET about = '', whom = 0"+ofWhom, person)
	if err == nil {
		_, err = tx.Exec("UPDATE audits SET about = '', by_whom = '', name = '', person = 0, "+
			"account = '', chat = ''"+ofPerson, person)
	}
	if err != nil {
		return fmt.Errorf("audit: erase person %d: %w", person, err)
	}
	for _, a := range chats {
		_, err := tx.Exec("UPDATE audits SET about = '', account = '', chat = ''"+ofChat, a.Account,
			a.Chat)
		if err != nil {
			return fmt.Errorf("audit: erase chat %s: %w", a, err)
		}
	}
	return nil
}

// EraseSender removes the personal content of entries by a sender without a number. The
// configuration can admit such senders.
func EraseSender(tx *store.Tx, account, sender string) error {
	_, err := tx.Exec("UPDATE audits SET about = '', by_whom = '', name = '', account = '', "+
		"chat = ''"+ofAuthor, account+"/"+sender, 0)
	return store.Wrap(err, "audit: erase a sender of %s", account)
}

// Link gives the entries of the person other to the person id, after the two were linked.
func Link(tx *store.Tx, id, other int64) error {
	_, err := tx.Exec("UPDATE audits SET whom = $2"+ofWhom, other, id)
	if err == nil {
		_, err = tx.Exec("UPDATE audits SET person = $2"+ofPerson, other, id)
	}
	return store.Wrap(err, "audit: link person %d to %d", other, id)
}

// Unlink gives the entries by a sender to the person to, after the sender was unlinked from the
// person from. Entries about the person from stay theirs, because they may be about either.
func Unlink(tx *store.Tx, account, sender string, from, to int64) error {
	_, err := tx.Exec("UPDATE audits SET person = $3"+ofAuthor, account+"/"+sender, from, to)
	return store.Wrap(err, "audit: unlink %s on %s from person %d", sender, account, from)
}

// Author returns the author of the entry in a form for people.
func (e Entry) Author() string {
	if e.Name != "" {
		return fmt.Sprintf("%s (%s)", e.Name, e.By)
	}
	return cmp.Or(e.By, "somebody who was forgotten")
}
