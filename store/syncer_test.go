package store

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// unsynced returns how many soft commits may be lost in a power loss.
func unsynced(db *DB) int64 {
	s := &db.write.log
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last - s.durable
}

// A soft transaction is visible at once, and on the disk with the next hard one or after 50 ms.
func TestTxSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "g.db"))
		if err := db.TxSoon(t.Context(), insert("a")); err != nil {
			t.Fatal(err)
		}
		if got := count(t, db.Read(t.Context())); got != 1 {
			t.Errorf("%d rows after a soft transaction, want 1", got)
		}
		if got := unsynced(db); got != 1 {
			t.Errorf("%d soft commits are not synced, want 1", got)
		}
		time.Sleep(softDelay)
		synctest.Wait()
		if got := unsynced(db); got != 0 {
			t.Errorf("%d soft commits are not synced after %v", got, softDelay)
		}
		if err := db.TxSoon(t.Context(), insert("b")); err != nil {
			t.Fatal(err)
		}
		if err := db.Tx(t.Context(), insert("c")); err != nil {
			t.Fatal(err)
		}
		if got := unsynced(db); got != 0 {
			t.Errorf("%d soft commits are not synced after a hard one", got)
		}
	})
}

// A soft transaction that calls Hard runs again, and waits for the disk.
func TestTxHard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "g.db"))
		if err := db.TxSoon(t.Context(), insert("a")); err != nil {
			t.Fatal(err)
		}
		after := 0
		err := db.TxSoon(t.Context(), func(tx *Tx) error {
			tx.Hard()
			tx.After(func() { after++ })
			return insert("b")(tx)
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := unsynced(db); got != 0 {
			t.Errorf("%d soft commits are not synced", got)
		}
		if got := count(t, db.Read(t.Context())); got != 2 || after != 1 {
			t.Errorf("%d rows and %d calls after the commit, want 2 and 1", got, after)
		}
	})
}
