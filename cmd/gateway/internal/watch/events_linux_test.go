package watch

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A write to a file that stays open, as the database does with each message, wakes nobody.
func TestWritesWakeNobody(t *testing.T) {
	dir := t.TempDir()
	database, err := os.Create(filepath.Join(dir, "gateway.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEvents()
	if err == nil {
		err = e.add(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}()
	want := func(name string) {
		t.Helper()
		select {
		case path := <-e.changed:
			if path != filepath.Join(dir, name) {
				t.Errorf("%s has changed, want %s", path, name)
			}
		case err := <-e.troubles:
			t.Fatal(err)
		case <-time.After(patience):
			t.Fatalf("nothing is told of %s", name)
		}
	}
	for range 100 {
		if _, err := database.WriteString("a page"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "media"), 0o700); err != nil {
		t.Fatal(err)
	}
	want("media")
	if err := database.Close(); err != nil {
		t.Fatal(err)
	}
	want("gateway.db-wal")
}
