package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// After Shred, deleted data is in no file. Writers meanwhile wait, and their writes succeed
// after it.
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

// While a reader still uses the old data, Shred returns an error.
func TestShredWhileReading(t *testing.T) {
	t.Parallel()
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

// A read keeps Shred from emptying the log until 200 writes have come. They don't wait for the
// read, and Shred succeeds after it.
func TestWritesWhileShredWaits(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "g.db"))
	if err := db.Tx(t.Context(), insert("old")); err != nil {
		t.Fatal(err)
	}
	rows, err := db.Read(t.Context()).Query("SELECT k FROM t")
	if err != nil {
		t.Fatal(err)
	}
	rows.Next()
	shredded := make(chan error, 1)
	go func() { shredded <- db.Shred(t.Context()) }()
	for i := range 200 {
		if err := db.TxSoon(t.Context(), insert(fmt.Sprint("new ", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-shredded; err != nil {
		t.Errorf("Shred = %v, want nil after the read", err)
	}
}

// Deleted data is also gone where pages were split, joined and moved. The rows have all sizes,
// stand among other rows, are changed, or have pages of their own.
func TestShredMixed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "g.db")
	db := open(t, path)
	random := rand.New(rand.NewPCG(1, 2))
	tx := func(fn func(tx *Tx) error) {
		t.Helper()
		if err := db.Tx(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	exec := func(query string, args ...any) {
		t.Helper()
		tx(func(tx *Tx) error { _, err := tx.Exec(query, args...); return err })
	}
	exec("CREATE TABLE u (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
	exec("CREATE INDEX u_body ON u (body)")
	for range 20 {
		tx(func(tx *Tx) error {
			for range 200 {
				word := "kept"
				if random.IntN(2) == 0 {
					word = "zanzibar"
				}
				size := []int{10, 100, 1000, 9000}[random.IntN(4)]
				_, err := tx.Exec("INSERT INTO u (id, body) VALUES ($1, $2)", random.Int64N(1<<40),
					strings.Repeat(fmt.Sprint(word, random.IntN(1000), " "), 1+random.IntN(size)/12))
				if err != nil {
					return err
				}
			}
			return nil
		})
		exec("UPDATE u SET body = 'zanzibar was here ' || substr(body, 1, 2000) WHERE id % 11 = 3")
		exec("UPDATE u SET body = 'kept' || length(body) WHERE id % 7 = 3 AND body LIKE 'zanz%'")
		exec("DELETE FROM u WHERE id % 3 = 1 AND body LIKE '%zanzibar%'")
	}
	exec("DELETE FROM u WHERE body LIKE '%zanzibar%'")
	if err := db.Shred(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + "-wal"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(content), "zanzibar"); n > 0 {
			t.Errorf("%s holds %d traces of what was deleted", filepath.Base(name), n)
		}
	}
}

// A pointer map page is never taken for a b-tree page, also behind the page with the lock byte,
// which SQLite leaves out: page 1048577 of a database with pages of 1024 bytes.
func TestPointerMaps(t *testing.T) {
	for size := int64(512); size <= 1<<16; size *= 2 {
		lock := int64(1<<30)/size + 1
		maps := map[int64]bool{lock: true}
		// See ptrmapPageno in SQLite's btree.c.
		for n := int64(2); n < lock+size; n += size/5 + 1 {
			if n == lock {
				maps[n+1] = true
			}
			maps[n] = true
		}
		for n := max(lock-size, 1); n < lock+size; n++ {
			if got := hasCells(n, size); got == maps[n] {
				t.Errorf("page %d of %d bytes can be a b-tree page: %t, want %t", n, size, got, !got)
			}
		}
	}
	if hasCells(1048578, 1024) { // seen in a database of 1.1 GB
		t.Error("page 1048578 can be a b-tree page, and is a pointer map")
	}
}
