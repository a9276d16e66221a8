package gate_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var discard = slog.New(slog.DiscardHandler)

func openStore(t *testing.T, dir string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(dir, "g.db"),
		[]store.Migration{bus.Migration, gate.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

var chatA = bus.Address{Account: "full", Chat: "a"}

// A world is a store with an outbox.
type world struct {
	t      *testing.T
	db     *store.DB
	outbox *bus.Outbox
}

// inWorld runs test in a synctest bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&world{t: t, db: openStore(t, t.TempDir()), outbox: bus.NewOutbox()})
	})
}

// exec runs a statement.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
