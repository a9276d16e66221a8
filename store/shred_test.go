package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// What was deleted is in no file after Shred, and those who write meanwhile are done behind it.
func TestShred(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	db := open(t, path)
	for i := range 200 {
		text := fmt.Sprint("zanzibar ", i, strings.Repeat("x", 500))
		if err := db.Tx(t.Context(), insert(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Tx(t.Context(), func(tx *Tx) error {
		_, err := tx.Exec("DELETE FROM t")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := db.Tx(t.Context(), insert(fmt.Sprint("new ", i))); err != nil {
				t.Error(err)
			}
		})
		if i%10 == 0 {
			wg.Go(func() {
				if err := db.Shred(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if got := count(t, db.Read(t.Context())); got != 50 {
		t.Errorf("%d rows, want 50", got)
	}
	for _, name := range []string{path, path + "-wal"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "zanzibar") {
			t.Errorf("%s holds what was deleted", filepath.Base(name))
		}
	}
}

// As long as somebody reads what was there before, Shred says that it has not done its work.
func TestShredWhileReading(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	for i := range 100 {
		if err := db.Tx(t.Context(), insert(fmt.Sprint(i, strings.Repeat("x", 2000)))); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := db.Read(t.Context()).Query("SELECT k FROM t")
	if err != nil {
		t.Fatal(err)
	}
	rows.Next()
	if err := db.Shred(t.Context()); err == nil {
		t.Error("Shred = nil while somebody reads, want an error")
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Shred(t.Context()); err != nil {
		t.Errorf("Shred = %v after that", err)
	}
}
