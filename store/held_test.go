package store

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"gateway/store/storetest"
)

// Run tells of a read that keeps more than MaxHeld in the log, once, and of its end. It does not
// tell of a long log without a reader.
func TestLongRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, filepath.Join(storetest.Dir(t), "g.db"))
		if err := db.Tx(t.Context(), insert("a")); err != nil {
			t.Fatal(err)
		}
		var told []int64
		db.OnLongRead(func(held int64) { told = append(told, held) })
		go func() { _ = db.Run(t.Context()) }() // an error would leave told empty
		grow := func() {
			t.Helper()
			err := db.TxSoon(t.Context(), func(tx *Tx) error {
				return tx.script("CREATE TABLE IF NOT EXISTS big (b BLOB);" +
					"INSERT INTO big VALUES (zeroblob(66 << 20))")
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		grow()
		if len(told) > 0 {
			t.Errorf("told %v while nobody reads", told)
		}
		rows, err := db.read.Query("SELECT id FROM t")
		if err != nil || !rows.Next() {
			t.Fatal("no row", err)
		}
		grow()
		if len(told) != 1 || told[0] <= MaxHeld {
			t.Errorf("told %v during a long read, want one size", told)
		}
		if held, err := db.Held(t.Context()); err != nil || held <= MaxHeld {
			t.Errorf("Held = %d, %v", held, err)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(told) != 2 || told[1] != 0 {
			t.Errorf("told %v after the read, want 0", told)
		}
		if held, err := db.Held(t.Context()); err != nil || held != 0 {
			t.Errorf("Held = %d, %v; want 0", held, err)
		}
	})
}
