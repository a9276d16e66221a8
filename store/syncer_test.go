package store

import (
	"errors"
	"path/filepath"
	"slices"
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

// A soft transaction is visible at once. It is on the disk with the next hard transaction, or
// after 50 ms.
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

// A soft transaction that calls WaitForDisk runs again and waits for the disk.
func TestTxWaitForDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "g.db"))
		if err := db.TxSoon(t.Context(), insert("a")); err != nil {
			t.Fatal(err)
		}
		after := 0
		err := db.TxSoon(t.Context(), func(tx *Tx) error {
			tx.WaitForDisk()
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

// An early transaction is visible before it is on the disk. It is on the disk when TxEarly
// returns. Its functions run before other transactions see its data.
func TestTxEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "g.db"))
		var calls []string
		early := func(name string, hard bool) error {
			return db.TxEarly(t.Context(), func(tx *Tx) error {
				if tx.WaitForDiskAtReturn(); hard {
					tx.WaitForDisk()
				}
				tx.After(func() { calls = append(calls, "after") })
				return insert(name)(tx)
			}, func() {
				calls = append(calls, "visible")
				want := int64(1)
				if hard {
					want = 0
				}
				if got := unsynced(db); got != want {
					t.Errorf("%s: %d commits are not synced when they are visible, want %d", name, got, want)
				}
				if got := count(t, db.Read(t.Context())); got != len(calls)/2 {
					t.Errorf("%s: %d rows are visible, want %d", name, got, len(calls)/2)
				}
			})
		}
		for name, hard := range map[string]bool{"a": false, "b": true} {
			if err := early(name, hard); err != nil {
				t.Fatal(err)
			}
			if got := unsynced(db); got != 0 {
				t.Errorf("%s: %d commits are not synced", name, got)
			}
		}
		if want := []string{"after", "visible", "after", "visible"}; !slices.Equal(calls, want) {
			t.Errorf("calls %q, want %q", calls, want)
		}
		err := db.TxSoon(t.Context(), func(tx *Tx) error {
			tx.WaitForDiskAtReturn()
			return insert("c")(tx)
		})
		if got := unsynced(db); err != nil || got != 0 {
			t.Errorf("%d commits are not synced, error %v", got, err)
		}
	})
}

// If the log can't be synced, an early transaction waits until its data is in the database file.
// If that fails, too, it returns an error.
func TestTxEarlyFails(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	log := &db.write.log
	path, repair := log.path, log.repair
	repaired := 0
	missing := filepath.Join(t.TempDir(), "missing")
	log.use(missing, func() error {
		repaired++
		log.path = path // the log can be synced again
		return repair()
	})
	if err := db.TxEarly(t.Context(), insert("a"), func() {}); err != nil || repaired != 1 {
		t.Errorf("error %v after %d repairs, want none after 1", err, repaired)
	}
	failed := errors.New("the disk is broken")
	log.use(missing, func() error { return failed })
	err := db.TxEarly(t.Context(), insert("b"), func() {})
	if !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
	if unsynced(db) != 1 {
		t.Error("the commit counts as synced")
	}
	// The disk may not know yet that a repair has emptied the log.
	log.use(missing, repair)
	if err := db.TxEarly(t.Context(), insert("c"), func() {}); err == nil || unsynced(db) != 2 {
		t.Errorf("error %v with %d commits that are not synced; want one, with 2", err, unsynced(db))
	}
	log.use(path, repair)
}

// After a failed sync, the operating system may regard data as written that is not on the disk.
// So a later sync or a hard commit proves nothing. Early and hard transactions fail until the
// log is repaired.
func TestTxAfterFailedSync(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	log := &db.write.log
	path, repair := log.path, log.repair
	failed := errors.New("the disk is broken")
	fail := func() error { return failed }
	log.use(filepath.Join(t.TempDir(), "missing"), fail)
	if err := db.TxEarly(t.Context(), insert("a"), func() {}); !errors.Is(err, failed) {
		t.Fatalf("error %v, want %v", err, failed)
	}
	log.use(path, fail) // syncs succeed again, but the repair fails
	if err := db.Tx(t.Context(), insert("b")); !errors.Is(err, failed) {
		t.Errorf("a hard transaction reports %v before the log was repaired, want %v", err, failed)
	}
	if err := db.TxSoon(t.Context(), insert("b")); err != nil {
		t.Fatal(err)
	}
	if err := db.TxEarly(t.Context(), insert("c"), func() {}); !errors.Is(err, failed) {
		t.Errorf("error %v before the log was repaired, want %v", err, failed)
	}
	repaired := 0
	log.use(path, func() error {
		repaired++
		return repair()
	})
	if err := db.Tx(t.Context(), insert("d")); err != nil || repaired != 1 {
		t.Errorf("error %v after %d repairs, want none after 1", err, repaired)
	}
	if got := unsynced(db); got != 0 {
		t.Errorf("%d soft commits are not synced", got)
	}
	if err := db.TxEarly(t.Context(), insert("e"), func() {}); err != nil || repaired != 1 {
		t.Errorf("error %v after %d repairs, want none after 1", err, repaired)
	}
}

// A long read keeps a repair from emptying the log. Hard transactions wait until the read ends.
// Meanwhile the store does not count as lost.
func TestRepairWaitsForReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "g.db"))
		if _, err := db.write.tx.db.Exec("PRAGMA busy_timeout=0"); err != nil { // it waits in real time
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			if err := db.Tx(t.Context(), insert(name)); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := db.read.Query("SELECT k FROM t")
		if err != nil || !rows.Next() {
			t.Fatal("no row", err)
		}
		defer rows.Close()
		time.AfterFunc(time.Minute, func() { _ = rows.Close() }) // the defer closes it again
		db.write.log.failed()
		if err := db.TxEarly(t.Context(), insert("c"), func() {}); err == nil || IsLost(err) {
			t.Errorf("an early transaction reports %v, want that there is a reader", err)
		}
		began := time.Now()
		if err := db.Tx(t.Context(), insert("d")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 50*time.Second || took > 2*time.Minute {
			t.Errorf("a hard transaction took %v, want a minute", took)
		}
		if got := unsynced(db); got != 0 {
			t.Errorf("%d soft commits are not synced", got)
		}
	})
}

// use replaces the path and the repair of s between two syncs.
func (s *syncer) use(path string, repair func() error) {
	s.one.Lock()
	defer s.one.Unlock()
	s.path, s.repair = path, repair
	if s.file != nil {
		_ = s.file.Close() // nothing was written through it
		s.file = nil
	}
}
