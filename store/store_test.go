package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var testTables = Migration{Package: "test", Steps: []string{
	"CREATE TABLE t (id IDENTITY PRIMARY KEY, k TEXT NOT NULL UNIQUE);"}}

func open(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Open(t.Context(), path, []Migration{testTables}, nil)
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

func count(t *testing.T, q Queryer) (n int) {
	t.Helper()
	if err := q.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func insert(k string) func(*Tx) error {
	return func(tx *Tx) error {
		_, err := tx.Exec("INSERT INTO t (k) VALUES ($1)", k)
		return err
	}
}

// Other users of the machine can't read a new database.
func TestPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	db := open(t, path)
	if err := db.Tx(t.Context(), insert("a")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode != 0o600 {
			t.Errorf("%s has the mode %o, want 600", filepath.Base(file), mode)
		}
	}
}

// Transactions that wait at the same time share commits. If one fails, the others still succeed.
func TestTxGroups(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	errMine := errors.New("mine")
	release := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // this transaction runs first, while the others gather
		if err := db.Tx(t.Context(), func(tx *Tx) error { <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	const n = 100
	var runs atomic.Int64
	for i := range n {
		wg.Go(func() {
			err := db.Tx(t.Context(), func(tx *Tx) error {
				runs.Add(1)
				if err := insert(fmt.Sprint(i))(tx); err != nil {
					return err
				}
				if i%10 == 0 {
					return errMine
				}
				return nil
			})
			if failed := i%10 == 0; failed != errors.Is(err, errMine) || !failed && err != nil {
				t.Errorf("Tx %d = %v", i, err)
			}
		})
	}
	close(release)
	wg.Wait()
	if got := count(t, db.Read(t.Context())); got != n*9/10 {
		t.Errorf("%d rows, want %d", got, n*9/10)
	}
}

// A panic in a transaction reaches its caller, and the database still works.
func TestTxPanics(t *testing.T) {
	t.Run("in the transaction", func(t *testing.T) {
		testPanic(t, func(*Tx) error { panic("mine") })
	})
	t.Run("after the commit", func(t *testing.T) {
		testPanic(t, func(tx *Tx) error {
			tx.After(func() { panic("mine") })
			return nil
		})
	})
}

func testPanic(t *testing.T, fn func(*Tx) error) {
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("recovered %v, want mine", p)
			}
		}()
		_ = db.Tx(t.Context(), fn) // panics
	}()
	if err := db.Tx(t.Context(), insert("after")); err != nil {
		t.Error(err)
	}
}

func TestTxSeesItself(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	err := db.Tx(t.Context(), func(tx *Tx) error {
		if err := insert("a")(tx); err != nil {
			return err
		}
		if got := count(t, tx); got != 1 {
			t.Errorf("transaction sees %d rows, want its own", got)
		}
		if got := count(t, db.Read(t.Context())); got != 0 {
			t.Errorf("reader sees %d rows before the commit", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, db.Read(t.Context())); got != 1 {
		t.Errorf("reader sees %d rows after the commit, want 1", got)
	}
}

func TestTxAfterCancelAndClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	db := open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Tx(ctx, insert("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("Tx with an ended context = %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Tx(t.Context(), insert("a")); !errors.Is(err, errClosed) {
		t.Errorf("Tx on a closed database = %v", err)
	}
	if got := count(t, open(t, path).Read(t.Context())); got != 0 {
		t.Errorf("%d rows, want none", got)
	}
}

// A second process waits some seconds for the lock, and then gets an error.
func TestLockRefusesASecondProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "g.db")
		db := open(t, path)
		if _, err := Open(t.Context(), path, nil, nil); !errors.Is(err, ErrLocked) {
			t.Errorf("second Open = %v, want %v", err, ErrLocked)
		}
		shared, err := Open(t.Context(), path, []Migration{testTables}, &Options{Shared: true})
		if err != nil {
			t.Fatalf("shared Open = %v", err)
		}
		defer shared.Close()
		if err := shared.Tx(t.Context(), insert("from outside")); err != nil {
			t.Error(err)
		}
		if got := count(t, db.Read(t.Context())); got != 1 {
			t.Errorf("owner sees %d rows, want 1", got)
		}
	})
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	db := open(t, path)
	if err := db.Tx(t.Context(), insert("old")); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	two := Migration{Package: "test", Steps: append(testTables.Steps[:1:1],
		"ALTER TABLE t ADD COLUMN v TEXT NOT NULL DEFAULT 'new';")}
	db2, err := Open(t.Context(), path, []Migration{two}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var v string
	err = db2.Read(t.Context()).QueryRow("SELECT v FROM t WHERE k = 'old'").Scan(&v)
	if err != nil || v != "new" {
		t.Errorf("migrated row has %q, %v", v, err)
	}
	if err := db2.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path, []Migration{testTables}, nil); !errors.Is(err, ErrNewer) {
		t.Errorf("Open by an older version = %v, want %v", err, ErrNewer)
	}
}

// A command that meets a database whose first start was killed says that the gateway must start.
func TestSharedBeforeMigration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "g.db")
	if err := create(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), path, []Migration{testTables}, &Options{Shared: true})
	if err == nil {
		db.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "start the gateway") {
		t.Errorf("Open = %v, want that the gateway must start", err)
	}
}

// A gateway that lacks one of the packages in the database is older than the database. It would
// neither erase nor export the data of that package.
func TestUnknownPackage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	other := Migration{Package: "other", Steps: []string{"CREATE TABLE o (k TEXT PRIMARY KEY);"}}
	newer, err := Open(t.Context(), path, []Migration{testTables, other}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := newer.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Shared: true}} {
		older, err := Open(t.Context(), path, []Migration{testTables}, &o)
		if !errors.Is(err, ErrNewer) {
			t.Errorf("Open with %+v = %v, want %v", o, err, ErrNewer)
		}
		if err == nil && older.Close() != nil {
			t.Error("can't close the database")
		}
	}
}

func TestLease(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	now := time.UnixMilli(1_000_000)
	acquire := func(owner string, at time.Time) (l Lease, err error) {
		err = db.Tx(t.Context(), func(tx *Tx) error {
			l, err = Acquire(tx, "work", owner, at, time.Minute)
			return err
		})
		return l, err
	}
	a, err := acquire("a", now)
	if err != nil || a.Epoch != 1 {
		t.Fatalf("Acquire = %+v, %v", a, err)
	}
	if _, err := acquire("b", now.Add(59*time.Second)); !errors.Is(err, ErrHeld) {
		t.Errorf("Acquire of a held lease = %v, want %v", err, ErrHeld)
	}
	renew := func(l Lease, at time.Time) error {
		return db.Tx(t.Context(), func(tx *Tx) error { return l.Renew(tx, at, time.Minute) })
	}
	if err := renew(a, now.Add(50*time.Second)); err != nil {
		t.Errorf("Renew = %v", err)
	}
	b, err := acquire("b", now.Add(110*time.Second))
	if err != nil || b.Epoch != 2 {
		t.Fatalf("Acquire of an expired lease = %+v, %v", b, err)
	}
	if err := renew(a, now.Add(111*time.Second)); !errors.Is(err, ErrFenced) {
		t.Errorf("Renew of a lost lease = %v, want %v", err, ErrFenced)
	}
	if err := db.Tx(t.Context(), b.Release); err != nil {
		t.Fatal(err)
	}
	if c, err := acquire("a", now.Add(111*time.Second)); err != nil || c.Epoch != 3 {
		t.Errorf("Acquire of a released lease = %+v, %v", c, err)
	}
}

func BenchmarkTx(b *testing.B) {
	db := open(b, filepath.Join(b.TempDir(), "g.db"))
	var n atomic.Int64
	for b.Loop() {
		if err := db.Tx(b.Context(), insert(fmt.Sprint(n.Add(1)))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTxParallel(b *testing.B) {
	db := open(b, filepath.Join(b.TempDir(), "g.db"))
	var n atomic.Int64
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := db.Tx(b.Context(), insert(fmt.Sprint(n.Add(1)))); err != nil {
				b.Error(err)
			}
		}
	})
}

// A commit writes whole pages. So a new database has small pages. An existing database keeps its
// page size.
func TestPageSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.db")
	want := func(want int) {
		t.Helper()
		db, err := Open(t.Context(), path, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got int
		err = db.Read(t.Context()).QueryRow("PRAGMA page_size").Scan(&got)
		if err = errors.Join(err, db.Close()); err != nil || got != want {
			t.Errorf("pages have %d bytes, %v; want %d", got, err, want)
		}
	}
	want(pageSize)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("CREATE TABLE old (id INTEGER)")
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	want(4096)
}
