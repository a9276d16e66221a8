package session

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// beginOf starts a turn in the conversation of person 1. Its answer goes to a.
func (f *fixture) beginOf(a bus.Address, scope memory.Scope, text string) *Turn {
	f.t.Helper()
	turn := &Turn{Session: Key{Person: 1}, Address: a, Scope: scope}
	f.must(f.tx(func(tx *store.Tx) error { return begin(tx, turn, "", lease, f.now, said(text)) }))
	return turn
}

// A person's conversation has no address. Each chat in which the person writes has a row of its
// own, which shows when the chat comes to belong to another person.
func TestPersonsChats(t *testing.T) {
	f := newFixture(t)
	tg, wa := bus.Address{Account: "tg", Chat: "1"}, bus.Address{Account: "wa", Chat: "2"}
	f.must(f.end(f.begin(tg, "before"), Done, "yes"))
	for _, a := range []bus.Address{tg, wa, tg} {
		f.now = f.now.Add(time.Minute)
		turn := f.beginOf(a, "person-1", "hello")
		if turn.Moved != "" {
			t.Errorf("the turn at %s finds the scope %q, want its own", a, turn.Moved)
		}
		f.must(f.end(turn, Done, "hi"))
	}
	keys, err := OfScope(f.read(), "person-1")
	f.must(err)
	if want := []Key{{Person: 1}, KeyOf(tg), KeyOf(wa)}; !slices.Equal(keys, want) {
		t.Errorf("the sessions of the person are %q, want %q", keys, want)
	}
	idle, err := Idle(f.read(), f.now.Add(time.Second), 9)
	f.must(err)
	if want := []Key{KeyOf(tg), {Person: 1}}; !slices.Equal(idle, want) {
		t.Errorf("idle are %q, want %q: the other chat has nothing to note", idle, want)
	}
	f.wantTranscript(tg, "before", "yes")

	f.must(f.tx(func(tx *store.Tx) error { return SetScope(tx, KeyOf(wa), "person-7") }))
	turn := f.beginOf(wa, "person-1", "linked")
	if turn.Moved != "person-7" {
		t.Errorf("the turn of the linked person finds the scope %q, want person-7", turn.Moved)
	}
	f.now = f.now.Add(time.Minute)
	f.must(f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE turns SET address = 'x' WHERE id = $1", turn.ID)
		if err == nil {
			err = repairAddress(tx, turn.ID)
		}
		return err
	}))
	mended, err := RunningTurn(f.read(), Key{Person: 1})
	f.must(err)
	if mended.Address != wa {
		t.Errorf("a turn without a readable address is answered at %s, want %s", mended.Address, wa)
	}
}

// The exported conversation of a person, or of one member of a group, can be imported again.
func TestExportScopes(t *testing.T) {
	group := bus.Address{Account: "tg", Chat: "-5"}
	for _, key := range []Key{{Person: 1}, {Conversation: group, Speaker: "7"}} {
		f := newFixture(t)
		turn := &Turn{Session: key, Address: group, Scope: "person-1"}
		f.must(f.tx(func(tx *store.Tx) error {
			return begin(tx, turn, "", lease, f.now, said("one"))
		}))
		f.must(f.end(turn, Done, "two"))
		want := f.export(key)
		n, err := f.importFile(want, ImportOptions{Replace: true})
		f.must(err)
		if got := f.export(key); got != want || n != 2 {
			t.Errorf("after the import of %d messages it is\n%s\nwant\n%s", n, got, want)
		}
	}
}

// scopesVersion is a version of the tables in which each conversation belonged to one chat.
const scopesVersion = 10

// The conversations that an older version stored continue after the upgrade. Each one began when
// its row was created.
func TestUpgradeFromChats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old := Migration
	old.Steps = old.Steps[:scopesVersion]
	db, err := store.Open(t.Context(), path, []store.Migration{old}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		for _, query := range []string{
			`INSERT INTO sessions (key, account, chat, thread, title, scope, turns, created_ms, updated_ms)
				VALUES ('test/a/5', 'test', 'a', '5', '', 'person-1', 1, 500000, 900000)`,
			`INSERT INTO turns (session, state, owner, epoch, reply_to, address, created_ms, updated_ms)
				VALUES ('test/a/5', 'running', 'old', 3, '',
					'{"account":"test","chat":"a","thread":"5"}', 1, 1)`,
		} {
			if _, err := tx.Exec(query); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if db, err = store.Open(t.Context(), path, []store.Migration{Migration}, nil); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f := &fixture{t: t, db: db, now: time.UnixMilli(1_000_000)}
	key := KeyOf(bus.Address{Account: "test", Chat: "a", Thread: "5"})
	for limit, want := range map[int64]bool{500_000: false, 500_001: true} {
		if is, err := StartedBefore(f.read(), key, time.UnixMilli(limit)); is != want || err != nil {
			t.Errorf("it began before %d: %t, %v; want %t", limit, is, err, want)
		}
	}
	f.checkGoesOn()
	f.must(f.tx(func(tx *store.Tx) error { return Reset(tx, key, f.now) }))
	if is, err := StartedBefore(f.read(), key, f.now); is || err != nil {
		t.Errorf("after a reset it began before now: %t, %v", is, err)
	}
}
