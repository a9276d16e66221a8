package command

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
)

// The database keeps one request to restart for each chat, until it is taken.
func TestRestartRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	room := bus.Address{Account: "tg", Chat: "-1", Thread: "3"}
	ann := bus.Address{Account: "tg", Chat: "1"}
	lobby := bus.Address{Account: "tg", Chat: "-1"}
	noon := time.UnixMilli(1_800_000_000_000)
	do(t, path, func(tx *store.Tx) {
		for i, to := range []bus.Address{room, ann, room, lobby} {
			if err := askRestart(tx, to, noon.Add(time.Duration(i)*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	})
	want := []restartRequest{{room, noon}, {ann, noon.Add(time.Second)},
		{lobby, noon.Add(3 * time.Second)}}
	for _, want := range [][]restartRequest{want, nil} { // the second time, there are no requests
		do(t, path, func(tx *store.Tx) {
			got, err := takeRestarts(tx)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("takeRestarts = %v, %v, want %v", got, err, want)
			}
		})
	}
}

// do runs fn in a transaction of a newly opened database, like a new process.
func do(t *testing.T, path string, fn func(tx *store.Tx)) {
	t.Helper()
	db, err := store.Open(t.Context(), path, []store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Tx(t.Context(), func(tx *store.Tx) error { fn(tx); return nil })
	if err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
