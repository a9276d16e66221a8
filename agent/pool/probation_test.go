package pool

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// A transaction is repeated while the disk is full, for example. A turn is then taken over as if
// it had run once.
func TestBlameRepeats(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "gateway.db"),
		[]store.Migration{bus.Migration, session.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	life, err := store.BeginLife(t.Context(), db, time.Now(), 1)
	if err != nil {
		t.Fatal(err)
	}
	at := bus.Address{Account: "test", Chat: "a"}
	left := session.Turn{Session: session.KeyOf(at), Address: at}
	pr := probation{&Pool{life: life, Lease: store.Lease{Owner: "next", Epoch: 2},
		tables: tables{env: &turn.Env{DB: db, Inbox: bus.NewInbox(), Now: time.Now}}}}
	tx := func(fn func(tx *store.Tx) error) error { return db.Tx(context.Background(), fn) }
	err = tx(func(tx *store.Tx) error {
		_, err := session.BeginTurn(tx, &left, "", store.Lease{Owner: "killed", Epoch: 1}, time.Now())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	turns, err := session.RunningTurns(db.Read(t.Context()))
	if err != nil || len(turns) != 1 {
		t.Fatalf("%d turns run, %v; want one", len(turns), err)
	}
	before := turns[0].Attempts
	full := errors.New("the disk is full")
	err = tx(func(tx *store.Tx) error { return errors.Join(pr.blame(tx, turns, nil), full) })
	if !errors.Is(err, full) {
		t.Fatal(err)
	}
	if err := tx(func(tx *store.Tx) error { return pr.blame(tx, turns, nil) }); err != nil {
		t.Fatalf("the second run of the transaction: %v", err)
	}
	if a := turns[0]; a.Attempts != before+1 || a.Epoch != pr.Lease.Epoch {
		t.Errorf("the turn has %d attempts and the epoch %d, want %d and %d", a.Attempts, a.Epoch,
			before+1, pr.Lease.Epoch)
	}
}
