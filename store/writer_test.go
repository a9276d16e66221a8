package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// logSize returns how many bytes the write-ahead log has. Each commit adds at least a page.
func logSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// If a transaction fails or panics, the others in its group need no commit of their own. Nothing
// of the failed one is stored.
func TestGroupWithFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "g.db")
		db := open(t, path)
		errMine := errors.New("mine")
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // this transaction runs first, while the others gather
			if err := db.Tx(t.Context(), func(tx *Tx) error { <-release; return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		const n = 100
		for i := range n {
			wg.Go(func() {
				defer func() {
					if p := recover(); (p != nil) != (i == 7) {
						t.Errorf("Tx %d panicked with %v", i, p)
					}
				}()
				err := db.Tx(t.Context(), func(tx *Tx) error {
					if err := insert(fmt.Sprint(i))(tx); err != nil {
						return err
					}
					switch i {
					case 7:
						panic("mine")
					case 3, 98:
						return errMine
					}
					return nil
				})
				if failed := i == 3 || i == 98; failed != errors.Is(err, errMine) ||
					!failed && err != nil {
					t.Errorf("Tx %d = %v", i, err)
				}
			})
		}
		synctest.Wait()
		before := logSize(t, path)
		close(release)
		wg.Wait()
		if got := count(t, db.Read(t.Context())); got != n-3 {
			t.Errorf("%d rows, want %d", got, n-3)
		}
		if grown := logSize(t, path) - before; grown > 10*4200 {
			t.Errorf("the log has grown by %d bytes, the size of %d commits", grown, grown/4120)
		}
	})
}

// After some errors, SQLite ends the whole transaction by itself. Such an error, too, reaches
// only the request that caused it.
func TestGroupWithRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "g.db"))
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := db.Tx(t.Context(), func(tx *Tx) error { <-release; return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for i := range 10 {
			wg.Go(func() {
				err := db.Tx(t.Context(), func(tx *Tx) error {
					if i == 5 {
						_, err := tx.Exec("INSERT OR ROLLBACK INTO t (k) VALUES ($1), ($1)", "same")
						return err
					}
					return insert(fmt.Sprint(i))(tx)
				})
				if (err != nil) != (i == 5) {
					t.Errorf("Tx %d = %v", i, err)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if got := count(t, db.Read(t.Context())); got != 9 {
			t.Errorf("%d rows, want 9", got)
		}
	})
}

// A read waits, like a write, while the database can't be opened, and reports that.
func TestReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "g.db")
		db := open(t, path)
		if err := db.Tx(t.Context(), insert("a")); err != nil {
			t.Fatal(err)
		}
		var told []bool
		db.OnTrouble(func(err error) { told = append(told, err != nil) })
		away := func() {
			db.read.SetMaxIdleConns(0) // so that the file is opened again
			if err := os.Rename(path, path+".away"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		back := func() {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Error(err)
			}
		}
		away()
		began := time.Now()
		time.AfterFunc(10*time.Minute, back)
		if got := count(t, db.Read(t.Context())); got != 1 || time.Since(began) < 10*time.Minute {
			t.Errorf("%d rows after %s, want 1 after ten minutes", got, time.Since(began))
		}
		away()
		time.AfterFunc(time.Minute, back)
		rows, err := db.Read(t.Context()).Query("SELECT k FROM t")
		if err != nil {
			t.Fatalf("Query = %v", err)
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
		if len(told) != 4 || !told[0] || told[1] || !told[2] || told[3] {
			t.Errorf("told %v, want trouble and its end, twice", told)
		}
	})
}
