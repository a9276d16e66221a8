package supervisor_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"gateway/bus"
	"gateway/channels/gate"
	"gateway/store"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var errDown = errors.New("connection refused")

var message = bus.InboundMessage{
	ID: "1", From: bus.Address{Account: "tg", Chat: "chat of ann"},
	Sender: bus.Sender{ID: "ann", Name: "Ann"}, Text: "hello", Addressed: true,
}

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
