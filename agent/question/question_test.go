package question

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
	"gateway/store/plantest"
)

// A fixture is a database of questions.
type fixture struct {
	*testing.T
	db *store.DB
}

func open(t *testing.T, path string, m store.Migration) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), path, []store.Migration{m}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db := open(t, filepath.Join(t.TempDir(), "q.db"), Migration)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{T: t, db: db}
}

func (f *fixture) tx(fn func(tx *store.Tx) error) {
	f.Helper()
	if err := f.db.Tx(f.Context(), fn); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) read() store.Queryer { return f.db.Read(f.Context()) }

// put stores a question for a call of a turn.
func (f *fixture) put(turn int64, call string) *Question {
	f.Helper()
	q := &Question{Kind: Approve, Session: fmt.Sprint("test/", turn), Turn: turn, Call: call,
		Expires: time.UnixMilli(5000), Address: bus.Address{Account: "test", Chat: "a"}, Sender: "7",
		MinRole: bus.Admin, Text: "Shall I?", Options: []string{"x", "y"}, Subject: "s", After: 4}
	f.tx(func(tx *store.Tx) error { return Put(tx, q) })
	return q
}

func (f *fixture) get(q *Question) *Question {
	f.Helper()
	got, err := Find(f.read(), q.ID)
	if err != nil {
		f.Fatal(err)
	}
	return got
}

func TestPut(t *testing.T) {
	f := newFixture(t)
	q, other := f.put(1, "c"), f.put(2, "c")
	if q.State != Open || len(q.Code) != codeLength || q.Code == other.Code {
		t.Errorf("put %+v beside one with the code %s", q, other.Code)
	}
	for _, code := range []string{q.Code, " `" + strings.ToLower(q.Code) + "` "} {
		if got, err := ByCode(f.read(), code); err != nil || !reflect.DeepEqual(got, q) {
			t.Errorf("code %q is of %+v, %v, want %+v", code, got, err, q)
		}
	}
	if got := f.get(q); !reflect.DeepEqual(got, q) {
		t.Errorf("got %+v, want %+v", got, q)
	}
	for _, code := range []string{"", "'", "XXXXXX1", q.Code + " " + other.Code} {
		if got, err := ByCode(f.read(), code); !errors.Is(err, ErrNone) {
			t.Errorf("code %q is of %+v, %v, want %v", code, got, err, ErrNone)
		}
	}
	list, err := ListOpen(f.read())
	if err != nil || len(list) != 2 || list[0].ID != q.ID || list[1].ID != other.ID {
		t.Errorf("open are %+v, %v, want both in their order", list, err)
	}
}

// A question of a job or a hook is for the users of its chat, also after a group has got another
// id.
func TestMayAnswer(t *testing.T) {
	q := &Question{Address: bus.Address{Account: "test", Chat: "old"}}
	for _, test := range []struct {
		chat, before string
		role         bus.Role
		want         bool
	}{
		{"old", "", bus.User, true},
		{"old", "", bus.Guest, false},
		{"new", "old", bus.User, true},
		{"new", "old", bus.Guest, false},
		{"new", "", bus.User, false},
		{"new", "other", bus.User, false},
	} {
		m := &bus.InboundMessage{From: bus.Address{Account: "test", Chat: test.chat},
			PreviousChat: test.before, Role: test.role, Group: true}
		if got := q.MayAnswer(m); got != test.want {
			t.Errorf("MayAnswer of %+v = %t", test, got)
		}
	}
}

// The start of the gateway reads open questions only, no matter how many are decided.
func TestOpenByIndex(t *testing.T) {
	f := newFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	if _, err := ListOpen(p); err != nil {
		t.Fatal(err)
	}
	if len(p.Seen) != 1 || !strings.Contains(p.Seen[0], "INDEX questions_open") {
		t.Errorf("the plans are %q, want one with the index questions_open", p.Seen)
	}
}

// Erasing a session does not read the questions of other sessions.
func TestEraseByIndex(t *testing.T) {
	f := newFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	p.Explain(eraseQuery, "x/a")
	p.WantNoScan()
}

// A question is decided once. Later decisions have no effect. An approval is used once.
func TestDecideOnce(t *testing.T) {
	states := []State{Answered, Granted, Refused, Expired}
	for _, first := range states {
		f := newFixture(t)
		q := f.put(1, "c")
		decide := func(s State, by string) (ok bool) {
			f.tx(func(tx *store.Tx) (err error) {
				ok, err = Decide(tx, f.get(q), s, "answer of "+by, by)
				return err
			})
			return ok
		}
		use := func() (ok bool) {
			f.tx(func(tx *store.Tx) (err error) {
				ok, err = Use(tx, q)
				return err
			})
			return ok
		}
		if use() {
			t.Error("what nobody has granted was used")
		}
		if !decide(first, "test/7") {
			t.Errorf("%s: the first decision does not count", first)
		}
		for _, s := range states {
			if decide(s, "test/8") {
				t.Errorf("%s after %s counts", s, first)
			}
		}
		f.tx(func(tx *store.Tx) error { return VoidAll(tx, 1) })
		got := f.get(q)
		if got.State != first || got.By != "test/7" || got.Answer != "answer of test/7" {
			t.Errorf("decided is %+v, want %s by test/7", got, first)
		}
		if ok := use(); ok != (first == Granted) {
			t.Errorf("%s was used: %t", first, ok)
		}
		if use() {
			t.Errorf("%s was used twice", first)
		}
		if list, err := ListOpen(f.read()); err != nil || len(list) != 0 {
			t.Errorf("open are %+v, %v, want none", list, err)
		}
	}
}

func TestVoid(t *testing.T) {
	f := newFixture(t)
	q, other := f.put(1, "c"), f.put(2, "c")
	f.tx(func(tx *store.Tx) error { return VoidAll(tx, 1) })
	if got, kept := f.get(q).State, f.get(other).State; got != Void || kept != Open {
		t.Errorf("the question of the turn is %s and that of another one %s", got, kept)
	}
}

// If a call asks twice, OfCall returns the newest question.
func TestOfCall(t *testing.T) {
	f := newFixture(t)
	f.put(1, "c")
	newest := f.put(1, "c")
	f.put(2, "c")
	f.put(1, "d")
	got, err := OfCall(f.read(), 1, "c")
	if err != nil || got == nil || got.ID != newest.ID {
		t.Errorf("the question is %+v, %v, want the newest, %d", got, err, newest.ID)
	}
	if got, err := OfCall(f.read(), 3, "c"); got != nil || err != nil {
		t.Errorf("a call that asked nothing has %+v, %v", got, err)
	}
}

// A question that an earlier version has stored is unchanged after the migration.
func TestMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.db")
	db := open(t, path, store.Migration{Package: Migration.Package, Steps: Migration.Steps[:1]})
	f := &fixture{T: t, db: db}
	old, gone := f.put(1, "c"), f.put(2, "c")
	f.tx(func(tx *store.Tx) error {
		_, err := Decide(tx, old, Granted, "yes", "test/7")
		if err == nil {
			_, err = tx.Exec("DELETE FROM questions WHERE id = $1", gone.ID)
		}
		return err
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	f.db = open(t, path, Migration)
	if got := f.get(old); !reflect.DeepEqual(got, old) {
		t.Errorf("got %+v, want %+v", got, old)
	}
	f.put(1, "c")
	if err := f.db.Close(); err != nil {
		t.Fatal(err)
	}
}
