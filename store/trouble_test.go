package store

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fillUp allows no further page for the database.
func fillUp(t *testing.T, db *DB) {
	t.Helper()
	var pages int
	if err := db.write.tx.db.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	setPages(t, db, pages)
}

func setPages(t *testing.T, db *DB, n int) {
	t.Helper()
	var got int
	err := db.write.tx.db.QueryRow("PRAGMA max_page_count = " + strconv.Itoa(n)).Scan(&got)
	if err != nil || got != n {
		t.Fatalf("max_page_count = %d, %v; want %d", got, err, n)
	}
}

var long = strings.Repeat("x", 64<<10)

// Writes wait while there is no space. Each write succeeds once when there is space again. The
// database reports both.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "full.db"))
		var told []string
		db.OnTrouble(func(err error) {
			if err == nil {
				told = append(told, "goes on")
				return
			}
			told = append(told, "waits")
			if since, got := db.Trouble(); got == nil || since != time.Now() {
				t.Errorf("Trouble = %v, %s", got, since)
			}
		})
		fillUp(t, db)
		time.AfterFunc(10*time.Minute, func() { setPages(t, db, 1<<20) })
		if err := db.Tx(t.Context(), insert(long)); err != nil {
			t.Errorf("Tx = %v after there was room again", err)
		}
		if _, err := db.Trouble(); err != nil {
			t.Errorf("Trouble = %v when there is none", err)
		}
		if n := count(t, db.Read(t.Context())); n != 1 {
			t.Errorf("the row is there %d times", n)
		}
		if got := strings.Join(told, ", "); got != "waits, goes on" {
			t.Errorf("told: %s", got)
		}
	})
}

// A write that gives up does not report that the others continue.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "full.db"))
		var told []bool
		db.OnTrouble(func(err error) { told = append(told, err != nil) })
		fillUp(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := db.Tx(ctx, insert(long)); err == nil {
			t.Error("Tx = nil on a full disk")
		}
		if len(told) != 1 || !told[0] {
			t.Errorf("told %v, want trouble alone", told)
		}
		setPages(t, db, 1<<20)
	})
}

// A process that can't write when it starts says so at once.
func TestUnusableAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "full.db"))
		if _, err := db.write.tx.db.Exec("PRAGMA query_only = 1"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := BeginLife(t.Context(), db, began, 1); !IsUnusable(err) {
			t.Errorf("BeginLife = %v, want the reason why it can't write", err)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it waited %v", waited)
		}
	})
}

// A process that only opens and closes a database leaves it as it is.
func TestOpenWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	var before []byte
	for i := range 2 {
		db, err := Open(t.Context(), path, []Migration{testTables}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if wal, err := os.Stat(path + "-wal"); i > 0 && (err != nil || wal.Size() > 0) {
			t.Errorf("the write-ahead log has %d bytes, %v", wal.Size(), err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && !bytes.Equal(now, before) {
			t.Error("the file has changed")
		}
		before = now
	}
}

// When the process ends, all waiting writes together wait only some seconds more, however many
// they are. So do writes that begin one after another.
func TestManyFullAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(t.TempDir(), "full.db"))
		fillUp(t, db)
		began := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := db.Tx(t.Context(), insert(long)); !IsUnusable(err) {
					t.Errorf("Tx = %v without room", err)
				}
			})
		}
		time.AfterFunc(time.Minute, db.ShortenWaits)
		wg.Wait()
		if took := time.Since(began); took > time.Minute+4*lastPatience {
			t.Errorf("they were given up after %s", took)
		}
		began = time.Now()
		for range 50 {
			if err := db.Tx(t.Context(), insert(long)); !IsUnusable(err) {
				t.Errorf("Tx = %v without room", err)
			}
		}
		if took := time.Since(began); took > lastPatience {
			t.Errorf("later ones were given up after %s", took)
		}
	})
}

// When the process ends, a write waits only some seconds more. In a process that shares another
// process's database, a write does not wait at all.
func TestFullAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "full.db")
		db := open(t, path)
		fillUp(t, db)
		began := time.Now()
		time.AfterFunc(time.Minute, func() { db.ShortenWaits(); db.ShortenWaits() })
		if err := db.Tx(t.Context(), insert(long)); !IsUnusable(err) {
			t.Errorf("Tx = %v without room", err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*lastPatience {
			t.Errorf("it was given up after %s", took)
		}
		beside, err := Open(t.Context(), path, []Migration{testTables}, &Options{Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		defer beside.Close()
		fillUp(t, beside)
		began = time.Now()
		if err := beside.Tx(t.Context(), insert(long)); !IsUnusable(err) {
			t.Errorf("Tx = %v without room", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a process beside it has waited %s", took)
		}
		if n := count(t, db.Read(t.Context())); n != 0 {
			t.Errorf("%d rows are there", n)
		}
	})
}

// IsDenied recognises a database that can't be written, and one that can't be opened.
func TestIsDenied(t *testing.T) {
	dir := t.TempDir()
	db := open(t, filepath.Join(dir, "g.db"))
	if _, err := db.read.Exec("DELETE FROM t"); !IsDenied(err) { // this connection only reads
		t.Errorf("IsDenied(%v) = false for a database that can't be written", err)
	}
	if _, err := Versions(t.Context(), dir); !IsDenied(err) {
		t.Errorf("IsDenied(%v) = false for a database that can't be opened", err)
	}
	if _, err := db.read.Exec("no SQL"); IsDenied(err) {
		t.Errorf("IsDenied(%v) = true", err)
	}
}
