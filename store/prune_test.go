package store

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// logTable is a table with rows that end and rows that never end.
var logTable = Migration{Package: "log", Steps: []string{`
CREATE TABLE log (
	id    IDENTITY PRIMARY KEY,
	state TEXT NOT NULL,
	text  TEXT NOT NULL,
	at_ms BIGINT
);`}}

var logPruning = Pruning{Table: "log", Time: "at_ms", Over: "state = 'done'"}

func openLog(t testing.TB) *DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g.db")
	db, err := Open(t.Context(), path, []Migration{logTable}, nil)
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

// fill adds n rows, each a millisecond after the one before.
func fill(t testing.TB, db *DB, from, n int, state, text string) {
	t.Helper()
	err := db.Tx(t.Context(), func(tx *Tx) error {
		for i := range n {
			_, err := tx.Exec("INSERT INTO log (state, text, at_ms) VALUES ($1, $2, $3)",
				state, text, from+i)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// prune runs steps until nothing is left to do. It returns the number of rows removed and the
// number of steps.
func prune(t testing.TB, db *DB, before time.Time) (removed, steps int) {
	t.Helper()
	for after := int64(0); ; {
		var n int
		var next int64
		err := db.Tx(t.Context(), func(tx *Tx) (err error) {
			n, next, err = logPruning.Step(tx, before, after)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n > PruneBatch {
			t.Errorf("a step has removed %d rows, want %d at most", n, PruneBatch)
		}
		removed, steps = removed+n, steps+1
		if after = next; next == 0 {
			return removed, steps
		}
	}
}

// Old rows that have ended are removed, no matter which rows stand before them. Young rows, rows
// that have not ended and the newest row stay. A table of young rows is not read to its end.
func TestPrune(t *testing.T) {
	for _, test := range []struct {
		name                     string
		fill                     func(db *DB)
		before                   int64
		removed, left, mostSteps int
	}{
		{"none", func(*DB) {}, 5, 0, 0, 1},
		{"all", func(db *DB) { fill(t, db, 0, 1700, "done", "") }, 1e6, 1699, 1, 4},
		{"old", func(db *DB) { fill(t, db, 0, 1700, "done", "") }, 1200, 1200, 500, 4},
		{"page", func(db *DB) { fill(t, db, 0, 1000, "done", "") }, 500, 500, 500, 2},
		{"open", func(db *DB) { fill(t, db, 0, 1700, "open", "") }, 1e6, 0, 1700, 4},
		{"behind others", func(db *DB) {
			fill(t, db, 0, 800, "open", "")
			fill(t, db, 800, 10, "done", "")
			fill(t, db, 9000, 1, "done", "")
		}, 5000, 10, 801, 2},
		{"a young one before", func(db *DB) { // for example a row that was tried again
			fill(t, db, 9000, 1, "done", "")
			fill(t, db, 0, 10, "done", "")
			fill(t, db, 9001, 1, "done", "")
		}, 5000, 10, 2, 1},
		{"young", func(db *DB) { fill(t, db, 9000, 5000, "done", "") }, 5000, 0, 5000, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := openLog(t)
			test.fill(db)
			removed, steps := prune(t, db, time.UnixMilli(test.before))
			var left int
			err := db.Read(t.Context()).QueryRow("SELECT count(*) FROM log").Scan(&left)
			if err != nil {
				t.Fatal(err)
			}
			if removed != test.removed || left != test.left || steps > test.mostSteps {
				t.Errorf("%d went in %d steps, %d are left; want %d, %d at most, %d",
					removed, steps, left, test.removed, test.mostSteps, test.left)
			}
		})
	}
}

// If the times of rows change, old rows are found behind any number of young ones.
func TestPruneChanging(t *testing.T) {
	db := openLog(t)
	fill(t, db, 9000, 1200, "done", "") // for example many rows that were tried again
	fill(t, db, 0, 10, "done", "")
	fill(t, db, 9000, 1, "done", "")
	p := logPruning
	p.Changing = true
	removed := 0
	for after, steps := int64(0), 0; steps == 0 || after > 0; steps++ {
		err := db.Tx(t.Context(), func(tx *Tx) error {
			n, next, err := p.Step(tx, time.UnixMilli(5000), after)
			removed, after = removed+n, next
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if removed != 10 {
		t.Errorf("%d rows went, want 10", removed)
	}
}

// With Below, rows from that id on stay.
func TestPruneBelow(t *testing.T) {
	db := openLog(t)
	fill(t, db, 0, 10, "done", "")
	err := db.Tx(t.Context(), func(tx *Tx) error {
		p := logPruning
		p.Below = 4
		n, _, err := p.Step(tx, time.UnixMilli(5000), 0)
		if n != 3 {
			t.Errorf("%d rows went, want 3", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The used space grows and shrinks with the rows, whether they are in the log or in the database
// file.
func TestUsed(t *testing.T) {
	db := openLog(t)
	used := func() int64 {
		t.Helper()
		n, err := db.Used(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	empty := used()
	fill(t, db, 0, 1000, "done", strings.Repeat("x", 3000))
	full := used()
	if grown := full - empty; grown < 3_000_000 || grown > 6_000_000 {
		t.Errorf("rows of 3 MB take %d bytes", grown)
	}
	list, err := db.Largest(t.Context())
	if err != nil || len(list) == 0 || list[0].Table != "log" || list[0].Bytes < 3_000_000 {
		t.Errorf("Largest = %v, %v; want log first, with 3 MB", list, err)
	}
	prune(t, db, time.UnixMilli(5000))
	if rest := used() - empty; rest > 100_000 {
		t.Errorf("%d bytes are used by one row", rest)
	}
}

// Unused space is given back to the file system in small steps, except for some spare pages that
// are used next.
func TestShrink(t *testing.T) {
	db := openLog(t)
	fill(t, db, 0, 3000, "done", strings.Repeat("x", 3000))
	fill(t, db, 9000, 1, "done", "")
	size := func() int64 {
		t.Helper()
		// This moves the log into the database file and cuts the log.
		if _, err := checkpointFile(t.Context(), db.path, "TRUNCATE"); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(db.path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	full := size()
	prune(t, db, time.UnixMilli(5000))
	for steps := 1; ; steps++ {
		more, err := db.Shrink(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		if steps > 1000 {
			t.Fatal("Shrink never comes to an end")
		}
	}
	// The spare pages, the pages of the last steps, and the tables. A page has 4 KB.
	most := int64(spare+2*shrinkPages+32) * 4096
	if got := size(); got > most || full < 2*most {
		t.Errorf("%d bytes of %d are left, want %d at most", got, full, most)
	}
}

// A database that was made without the setting that Shrink needs works as before. Shrink works
// after the next Shred.
func TestShrinkOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	err := withFile(t.Context(), path, func(db *sql.DB) error {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE old (x)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	mode := func() (n int) {
		if err := db.Read(t.Context()).QueryRow("PRAGMA auto_vacuum").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if more, err := db.Shrink(t.Context()); more || err != nil || mode() != 0 {
		t.Errorf("Shrink = %t, %v with mode %d, want false, nil, 0", more, err, mode())
	}
	if err := db.Shred(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db = open(t, path); mode() != 2 {
		t.Errorf("mode %d after Shred and a new start, want 2", mode())
	}
}

// An old database is rewritten once. All writers wait for that. From then on, the same process
// works in small steps, too.
func TestShredOldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.db")
	err := withFile(t.Context(), path, func(db *sql.DB) error {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE old (x)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	rewritten := func() (n int) { // each rewrite increases the number
		if err := db.Read(t.Context()).QueryRow("PRAGMA schema_version").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := rewritten()
	for range 2 {
		if err := db.Shred(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := rewritten() - before; n != 1 {
		t.Errorf("two calls of Shred have rewritten the database %d times, want once", n)
	}
	err = db.Tx(t.Context(), func(tx *Tx) error {
		for i := range 2000 {
			if err := insert(fmt.Sprint(i, strings.Repeat("x", 2000)))(tx); err != nil {
				return err
			}
		}
		_, err := tx.Exec("DELETE FROM t")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if more, err := db.Shrink(t.Context()); !more || err != nil {
		t.Errorf("Shrink = %t, %v, want true and no error", more, err)
	}
}

// A copy of an open database is complete. A damaged database is not copied.
func TestCopy(t *testing.T) {
	db := openLog(t)
	fill(t, db, 0, 100, "done", strings.Repeat("x", 3000))
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := Copy(t.Context(), db.path, to); err != nil {
		t.Fatal(err)
	}
	versions, err := Versions(t.Context(), to)
	if err != nil || versions["log"] != 1 {
		t.Errorf("versions are %v, %v; want log: 1", versions, err)
	}
	if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", info.Mode(), err)
	}
	missing := filepath.Join(t.TempDir(), "missing.db")
	if err := Copy(t.Context(), missing, to+"2"); err == nil {
		t.Error("a database that is not there was copied")
	}
	content, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	copy(content[50*4096:], strings.Repeat("?", 4096)) // a page of the table
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), to, to+"3"); err == nil {
		t.Error("a damaged database was copied")
	}
}

// BenchmarkPrune measures one step, for which other writers must wait.
func BenchmarkPrune(b *testing.B) {
	db := openLog(b)
	text := strings.Repeat("x", 500)
	for b.Loop() {
		b.StopTimer()
		fill(b, db, 0, PruneBatch+1, "done", text)
		b.StartTimer()
		err := db.Tx(b.Context(), func(tx *Tx) error {
			_, _, err := logPruning.Step(tx, time.UnixMilli(1e6), 0)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
