package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// TestUnlinked checks that a person who was linked by mistake loses the memory of the other one
// with the unlink: also their jobs, whose answers they get, don't use it any more. The other one
// keeps their own.
func TestUnlinked(t *testing.T) {
	t.Parallel()
	var leaks atomic.Int64
	var apart atomic.Bool
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		last := lastText(r)
		if apart.Load() && strings.Contains(last, "Bob's") &&
			strings.Contains(r.Messages[0].Content, "zanzibar") {
			leaks.Add(1)
		}
		return say("ok")
	}})
	w.configure(strings.ReplaceAll(quiet, `"open"`, `"pairing"`))
	w.telegram.AddUser(telegramtest.User{ID: annID, First: "Ann"})
	w.telegram.AddUser(telegramtest.User{ID: bobID, First: "Bob"})
	w.run()
	var ids []string
	for _, who := range []int64{annID, bobID} {
		w.telegram.Say(who, who, "hello")
		var code string
		w.eventually("a pairing code", func(db *store.DB) bool {
			for range w.query(db, []any{&code}, "SELECT code FROM pairings") {
				return true
			}
			return false
		})
		w.command("people", "approve", code)
		w.eventually("the person", func(db *store.DB) bool {
			return w.count(db, "people") == len(ids)+1
		})
		w.look(func(db *store.DB) {
			var id int64
			for range w.query(db, []any{&id}, "SELECT max(id) FROM people") {
				ids = append(ids, strconv.FormatInt(id, 10))
			}
		})
		w.await("a welcome", func() bool { return len(w.texts(who)) == 2 })
	}
	file := filepath.Join(w.home, "memory", "person-"+ids[0], "USER.md")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("- password: zanzibar\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.command("people", "link", ids[0], ids[1])
	w.wantReply(bobID, "hi", "ok")
	w.wantReply(bobID, "/remind every 1h to do Bob's work", "job 1")
	w.wantReply(bobID, "hi again", "ok")
	w.command("people", "unlink", "telegram", strconv.Itoa(bobID))
	apart.Store(true)
	run := func() {
		before := len(w.texts(bobID))
		w.command("jobs", "run", "1")
		w.await("the reminder", func() bool { return len(w.texts(bobID)) > before })
	}
	run()
	w.wantReply(bobID, "hello", "ok")
	run()
	if n := leaks.Load(); n > 0 {
		t.Errorf("%d requests for Bob's reminder contain Ann's memory", n)
	}
	w.wantReply(bobID, "/jobs", "Bob's work")
	w.wantReply(annID, "/jobs", "There are no jobs.")
}
