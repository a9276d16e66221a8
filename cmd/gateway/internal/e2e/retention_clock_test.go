//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/openai/openaitest"
	"gateway/store"
)

const doubtful = "the clock is far from the newest message: no old data is removed for a day; " +
	"check the clock"

// putClockAhead makes all messages two months older, so that the clock seems to be ahead. It
// returns their time. No gateway may run.
func (w *world) putClockAhead() time.Time {
	w.t.Helper()
	then := time.Now().AddDate(0, -2, 0)
	w.look(func(db *store.DB) {
		err := db.Tx(w.t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE inbox SET received_ms = $1", then.UnixMilli())
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	})
	return then
}

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
	then := w.putClockAhead()
	photo := filepath.Join(w.home, "media", "telegram", "7", "photo.jpg")
	writeFile(t, photo, []byte("a photo"))
	if err := os.Chtimes(photo, then, then); err != nil {
		t.Fatal(err)
	}
	p = w.start()
	p.says(doubtful, 1)
	w.answers(bobID, "hello")
	if _, err := os.Stat(photo); err != nil {
		t.Errorf("the photo is gone: %v", err)
	}
	if n := p.logged("old files removed"); n > 0 {
		t.Error("old files were removed")
	}
	// Now a message has the wrong time, too. The next start still doubts the clock.
	p.kill()
	p = w.start()
	p.says(doubtful, 1)
	w.answers(bobID, "hello again")
	if _, err := os.Stat(photo); err != nil {
		t.Errorf("the photo is gone after another start: %v", err)
	}
}

// TestWrongClockKeepsHistory checks that Dream, too, removes no old notes while the clock may be
// wrong.
func TestWrongClockKeepsHistory(t *testing.T) {
	t.Parallel()
	s := newEditWorld(t)
	s.configure(quiet + "\n[memory]\ndream_every = \"0s\"\n[retention]\nhistory = \"720h\"")
	s.set(func() { s.analyse = func(openaitest.Request) openaitest.Reply { return say("[SKIP]") } })
	p := s.start()
	p.ready()
	s.wantReply(annID, `DO remember {"key":"garden","value":"faces south"}`, "the tools said")
	writeFile(t, s.own("MEMORY.md"), []byte("# Memory\n\n- has a cat\n"))
	writeFile(t, s.own("history.jsonl"), []byte("{\"remark\":\"mine\"}\n"+notes()))
	if out, err := s.gateway("memory", "reindex", string(annScope)); err != nil ||
		!strings.Contains(out, "42 added") {
		t.Fatalf("reindex: %v\n%s", err, out)
	}
	p.kill()
	s.putClockAhead()
	s.start().says(doubtful, 1)
	s.tell("/dream", "I have read the new notes")
	if table, _, file := s.entries(); len(table) != 42 || len(file) != 43 {
		t.Errorf("%d notes are left in the table, %d lines in the file", len(table), len(file))
	}
}
