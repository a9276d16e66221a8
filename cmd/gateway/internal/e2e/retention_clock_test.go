//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gateway/store"
)

// TestWrongClockKeepsFiles checks that a gateway that starts with a clock that is far ahead, as
// that of a machine with an empty battery can be, keeps the files of people. It removes old files
// as soon as it starts.
func TestWrongClockKeepsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	p := w.start()
	p.ready()
	w.answers(annID, "hello")
	p.kill()
	// Now the clock is two months ahead of all that is stored.
	then := time.Now().AddDate(0, -2, 0)
	w.look(func(db *store.DB) {
		err := db.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE inbox SET received_ms = $1", then.UnixMilli())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	photo := filepath.Join(w.home, "media", "telegram", "7", "photo.jpg")
	writeFile(t, photo, []byte("a photo"))
	if err := os.Chtimes(photo, then, then); err != nil {
		t.Fatal(err)
	}
	p = w.start()
	p.says("the clock is far from the newest message: no old data is removed for a day; "+
		"check the clock", 1)
	w.answers(bobID, "hello")
	if _, err := os.Stat(photo); err != nil {
		t.Errorf("the photo is gone: %v", err)
	}
	if n := p.logged("old files removed"); n > 0 {
		t.Error("old files were removed")
	}
}
