package session

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
)

// keyVersion is a version of the tables in which only the key said what a session is.
const keyVersion = 4

// The sessions that an older version left get the columns that their keys stand for, and go on.
func TestUpgradeFromKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old := Migration
	old.Steps = old.Steps[:keyVersion]
	db, err := store.Open(t.Context(), path, []store.Migration{old}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		key, thread string
		want        Place
	}{
		{"test/a", "", Place{Kind: Chat}},
		{"test/a/5", "5", Place{Kind: Chat}},
		{"test/a/#5", "#5", Place{Kind: Chat}},
		{"test/a#3-c1", "", Place{Task, "3-c1", "test/a"}},
		{"test/a/5#@job-7", "5", Place{Job, "7", "test/a/5"}},
		{"test/a/5#@job-7#4-c_2", "5", Place{Task, "4-c_2", "test/a/5#@job-7"}},
		{"test/a#@hook-a-b", "", Place{Hook, "a-b", "test/a"}},
		{"test/a#@job--12", "", Place{Run, "12", "test/a"}},
		{"test/a#@job-7#@job--13", "", Place{Run, "13", "test/a#@job-7"}},
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
		var got Place
		f.must(f.read().QueryRow("SELECT kind, reference, parent FROM sessions WHERE key = $1", r.key).
			Scan(&got.Kind, &got.Ref, &got.Parent))
		if got != r.want {
			t.Errorf("%s is %+v, want %+v", r.key, got, r.want)
		}
	}
	f.wantWorkFor("test/a", "test/a#3-c1", "test/a#@hook-a-b", "test/a#@job--12")
	f.wantWorkFor("test/a/5", "test/a/5#@job-7", "test/a/5#@job-7#4-c_2")
	f.checkGoesOn()
}

// wantWorkFor checks which sessions have a running turn that works for the session key.
func (f *fixture) wantWorkFor(key Key, want ...Key) {
	f.t.Helper()
	list, err := f.RunningTasks(f.read(), key)
	f.must(err)
	var got []Key
	for _, t := range list {
		got = append(got, t.Session)
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("for %s work %q, want %q", key, got, want)
	}
}

// checkGoesOn ends the turn of a session that an older version left, and begins the next one.
func (f *fixture) checkGoesOn() {
	f.t.Helper()
	a := bus.Address{Account: "test", Chat: "a", Thread: "5"}
	running, err := f.RunningTurn(f.read(), KeyOf(a))
	f.must(err)
	f.must(f.tx(func(tx *store.Tx) error { return f.TakeOver(tx, running, lease, f.now) }))
	running.Epoch = lease.Epoch
	f.must(f.end(running, Done, "yes"))
	if next := f.begin(a, "and now"); next.Number != 2 {
		f.t.Errorf("the next turn has the number %d, want 2", next.Number)
	}
}
