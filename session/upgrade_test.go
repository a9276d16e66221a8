package session

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
)

// keyVersion is a version of the tables in which only the key described a session.
const keyVersion = 4

// The sessions that an older version stored get the columns that their keys stand for, and can
// be continued.
func TestUpgradeFromKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old := Migration
	old.Steps = old.Steps[:keyVersion]
	db, err := store.Open(t.Context(), path, []store.Migration{old}, nil)
	if err != nil {
		t.Fatal(err)
	}
	chat := KeyOf(bus.Address{Account: "test", Chat: "a"})
	thread := KeyOf(bus.Address{Account: "test", Chat: "a", Thread: "5"})
	rows := []struct {
		key, thread string
		want        Key
	}{
		{"test/a", "", chat},
		{"test/a/5", "5", thread},
		{"test/a/#5", "#5", KeyOf(bus.Address{Account: "test", Chat: "a", Thread: "#5"})},
		{"test/a#3-c1", "", chat.OfTask("3-c1")},
		{"test/a/5#@job-7", "5", thread.OfJob(7)},
		{"test/a/5#@job-7#4-c_2", "5", thread.OfJob(7).OfTask("4-c_2")},
		{"test/a#@hook-a-b", "", chat.OfHook("a-b")},
		{"test/a#@hook-a-b#5-c", "", chat.OfHook("a-b").OfTask("5-c")},
		{"test/a#@job--12", "", chat.OfRun(12)},
		{"test/a#@job-7#@job--13", "", chat.OfJob(7).OfRun(13)},
	}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		for _, r := range rows {
			_, err := tx.Exec(`INSERT INTO sessions (key, account, chat, thread, title, turns,
				created_ms, updated_ms) VALUES ($1, 'test', 'a', $2, 'T', 1, 1, 1)`, r.key, r.thread)
			if err == nil {
				_, err = tx.Exec(`INSERT INTO turns (session, state, owner, epoch, reply_to, address,
					created_ms, updated_ms) VALUES ($1, 'running', 'old', 3, '',
					'{"account":"test","chat":"a"}', 1, 1)`, r.key)
			}
			if err == nil {
				_, err = tx.Exec(`INSERT INTO messages (session, turn, body, created_ms)
					VALUES ($1, 1, '{"role":"user","text":"hello"}', 1)`, r.key)
			}
			if err != nil {
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

	db, err = store.Open(t.Context(), path, []store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f := &fixture{t: t, db: db, now: time.UnixMilli(1_000_000)}
	for _, r := range rows {
		if got, ok, err := Named(f.read(), r.want.String()); got != r.want || !ok || err != nil {
			t.Errorf("%s is %+v, %t, %v; want %+v", r.key, got, ok, err, r.want)
		}
		if list, err := EntriesAfter(f.read(), r.want, 0, 9); len(list) != 1 || err != nil {
			t.Errorf("%s has %d messages, %v; want one", r.want, len(list), err)
		}
	}
	f.wantWorkFor(chat, chat.OfTask("3-c1"), chat.OfHook("a-b"), chat.OfHook("a-b").OfTask("5-c"),
		chat.OfRun(12), chat.OfJob(7).OfRun(13))
	f.wantWorkFor(thread, thread.OfJob(7), thread.OfJob(7).OfTask("4-c_2"))
	f.checkGoesOn()
}

// wantWorkFor checks which sessions have a running turn that works for the session with this
// key.
func (f *fixture) wantWorkFor(key Key, want ...Key) {
	f.t.Helper()
	list, err := RunningTasks(f.read(), key)
	f.must(err)
	var got []Key
	for _, t := range list {
		got = append(got, t.Session)
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("for %s work %q, want %q", key, got, want)
	}
}

// checkGoesOn ends the running turn of a session that an older version left, and begins the next
// turn.
func (f *fixture) checkGoesOn() {
	f.t.Helper()
	a := bus.Address{Account: "test", Chat: "a", Thread: "5"}
	running, err := RunningTurn(f.read(), KeyOf(a))
	f.must(err)
	f.must(f.tx(func(tx *store.Tx) error { return TakeOver(tx, running, lease, f.now) }))
	running.Epoch = lease.Epoch
	f.must(f.end(running, Done, "yes"))
	if next := f.begin(a, "and now"); next.Number != 2 {
		f.t.Errorf("the next turn has the number %d, want 2", next.Number)
	}
}

// A session that became idle under an older version is found once, until its next turn.
func TestUpgradeOfIdle(t *testing.T) {
	const timeIndex = 12 // the version of the tables whose index of idle sessions has the time
	path := filepath.Join(t.TempDir(), "old.db")
	old := Migration
	old.Steps = old.Steps[:timeIndex]
	db, err := store.Open(t.Context(), path, []store.Migration{old}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO sessions (key, account, chat, thread, title, turns, tidy,
			created_ms, updated_ms) VALUES ('test/late', 'test', 'late', '', 'T', 1, 0, 1, 2000),
			('test/new', 'test', 'new', '', 'T', 1, 0, 1, 3000),
			('test/early', 'test', 'early', '', 'T', 1, 0, 1, 1000),
			('test/tidy', 'test', 'tidy', '', 'T', 1, 1, 1, 1000)`)
		return err
	})
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		db, err = store.Open(t.Context(), path, []store.Migration{Migration}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f := &fixture{t: t, db: db, now: time.UnixMilli(4000)}
	at := func(chat string) bus.Address { return bus.Address{Account: "test", Chat: chat} }
	wantIdle := func(since int64, want ...Key) {
		t.Helper()
		got, err := Idle(f.read(), time.UnixMilli(since), 9)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("idle since %d are %q, %v; want %q", since, got, err, want)
		}
	}
	wantIdle(3000, KeyOf(at("early")), KeyOf(at("late")))
	for _, chat := range []string{"early", "late"} {
		f.must(f.tx(func(tx *store.Tx) error { return MarkTidied(tx, KeyOf(at(chat))) }))
	}
	wantIdle(3000)
	for _, chat := range []string{"tidy", "early", "new"} {
		f.must(f.end(f.begin(at(chat), "hello"), Done, "hi"))
		f.now = f.now.Add(time.Second)
	}
	wantIdle(6000, KeyOf(at("tidy")), KeyOf(at("early")))
	wantIdle(9000, KeyOf(at("tidy")), KeyOf(at("early")), KeyOf(at("new")))
}
