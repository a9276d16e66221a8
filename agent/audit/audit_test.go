package audit

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
	"gateway/store/plantest"
)

type fixture struct {
	*testing.T
	db *store.DB
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"),
		[]store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t, db}
}

func (f *fixture) tx(fn func(tx *store.Tx) error) {
	f.Helper()
	if err := f.db.Tx(f.Context(), fn); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) add(e Entry) {
	f.Helper()
	f.tx(func(tx *store.Tx) error { return Add(tx, e, time.Unix(e.ID, 0)) })
}

// wantLines compares the entries of the log, the newest first.
func (f *fixture) wantLines(want ...string) {
	f.Helper()
	list, err := List(f.db.Read(f.Context()), 100, 0)
	if err != nil {
		f.Fatal(err)
	}
	var lines []string
	for _, e := range list {
		lines = append(lines, fmt.Sprintf("%s|%s|%s|%s", e.Action, e.About, e.Author(), e.Where.Chat))
	}
	if fmt.Sprint(lines) != fmt.Sprint(want) {
		f.Errorf("the log says\n%q, want\n%q", lines, want)
	}
}

func message(sender, chat string, person int64) bus.InboundMessage {
	m := bus.InboundMessage{From: bus.Address{Account: "tg", Chat: chat}, Person: person}
	m.Sender.ID, m.Sender.Name = sender, "User "+sender
	return m
}

// TestErase checks that the log forgets the names and the content of a forgotten person's
// decisions. The log still shows that something was decided.
func TestErase(t *testing.T) {
	f := newFixture(t)
	f.add(NewEntry(message("7", "a", 1), "approved", "`exec`\nwants to run"))
	f.add(Entry{Action: "role set to admin", About: "person 1", Whom: 1, By: CommandLine})
	f.add(NewEntry(message("8", "a", 2), "denied", "exec"))
	f.add(NewEntry(message("8", "b", 2), "halted", ""))
	f.wantLines("halted||User 8 (tg/8)|b", "denied|exec|User 8 (tg/8)|a",
		"role set to admin|person 1|the command line|", "approved|exec wants to run|User 7 (tg/7)|a")
	f.tx(func(tx *store.Tx) error {
		return Erase(tx, 1, []bus.Address{{Account: "tg", Chat: "a"}})
	})
	f.wantLines("halted||User 8 (tg/8)|b", "denied||User 8 (tg/8)|",
		"role set to admin||the command line|", "approved||somebody who was forgotten|")
}

// TestErasePersonOfTwo checks that erasing a person also erases the entries of another person who
// was linked to them before.
func TestErasePersonOfTwo(t *testing.T) {
	f := newFixture(t)
	f.add(NewEntry(message("7", "a", 1), "approved", "exec"))
	f.add(Entry{Action: "let in", About: "User 7", Whom: 1, By: CommandLine})
	f.tx(func(tx *store.Tx) error { return Link(tx, 2, 1) })
	f.tx(func(tx *store.Tx) error { return Erase(tx, 2, nil) })
	f.wantLines("let in||the command line|", "approved||somebody who was forgotten|")
}

// An unlinked sender takes along what they have decided, and it is erased with them. What the other
// one has decided stays.
func TestUnlink(t *testing.T) {
	f := newFixture(t)
	f.add(NewEntry(message("7", "a", 1), "approved", "exec"))
	f.add(NewEntry(message("8", "b", 1), "denied", "exec"))
	f.tx(func(tx *store.Tx) error { return Unlink(tx, "tg", "8", 1, 2) })
	f.tx(func(tx *store.Tx) error { return Erase(tx, 2, nil) })
	f.wantLines("denied||somebody who was forgotten|", "approved|exec|User 7 (tg/7)|a")
}

// NoteRules writes one entry with the keys of the changed rules. Prune keeps the rules in force.
func TestNoteRules(t *testing.T) {
	f := newFixture(t)
	note := func(r Rules) {
		f.tx(func(tx *store.Tx) error { return NoteRules(tx, r, time.Unix(100, 0)) })
	}
	note(Rules{"exec": "1", "tools.a": "1"})
	f.add(Entry{ID: 200, Action: "halted", By: CommandLine})
	f.tx(func(tx *store.Tx) error {
		_, _, err := Prune(tx, time.Unix(1000, 0), 0)
		return err
	})
	for _, same := range []bool{true, false} {
		rules := Rules{"exec": "1", "tools.a": "1"}
		if !same {
			rules = Rules{"exec": "2", "tools.b": "1"}
		}
		if got, err := SameRules(f.db.Read(t.Context()), rules); err != nil || got != same {
			t.Errorf("SameRules = %v, %v, want %v", got, err, same)
		}
	}
	note(Rules{"exec": "2", "tools.b": "1"})
	f.wantLines("rules changed|exec, tools.a, tools.b|the configuration file|",
		"halted||the command line|", "rules in force||the configuration file|")
}

// Prune removes old entries. List reads one page at a time.
func TestPruneAndPages(t *testing.T) {
	f := newFixture(t)
	for i := range int64(5) {
		f.add(Entry{ID: i, Action: fmt.Sprint("a", i), By: CommandLine})
	}
	f.tx(func(tx *store.Tx) error {
		_, _, err := Prune(tx, time.Unix(2, 0), 0)
		return err
	})
	list, err := List(f.db.Read(t.Context()), 2, 1)
	if err != nil || len(list) != 2 || list[0].Action != "a3" || list[1].Action != "a2" {
		t.Errorf("the second page is %v, %v", list, err)
	}
	if list, err = List(f.db.Read(t.Context()), 9, 3); err != nil || len(list) != 0 {
		t.Errorf("there is also %v, %v", list, err)
	}
}

// Erasing and linking people does not read the entries of everybody.
func TestEraseByIndex(t *testing.T) {
	f := newFixture(t)
	p := &plantest.Plans{Queryer: f.db.Read(t.Context()), T: t}
	p.Explain("UPDATE audits SET whom = 0"+ofWhom, 1)
	p.Explain("UPDATE audits SET person = 0"+ofPerson, 1)
	p.Explain("UPDATE audits SET name = ''"+ofAuthor, "x/1", 0)
	p.Explain("UPDATE audits SET chat = ''"+ofChat, "x", "1")
	p.WantNoScan()
}
