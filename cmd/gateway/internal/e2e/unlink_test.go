package e2e

import (
	"fmt"
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
	ids := w.approved(annID, bobID)
	w.know(ids[0], "password: zanzibar")
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

// approved starts the gateway, lets people on Telegram write to it and approves them. It returns
// their numbers.
func (w *world) approved(people ...int64) (ids []string) {
	w.t.Helper()
	w.configure(strings.ReplaceAll(quiet, `"open"`, `"pairing"`))
	for _, who := range people {
		w.telegram.AddUser(telegramtest.User{ID: who, First: fmt.Sprint("P", who)})
	}
	w.run()
	for _, who := range people {
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
	return ids
}

// know writes a line into the memory of a person.
func (w *world) know(person, line string) {
	w.t.Helper()
	file := filepath.Join(w.home, "memory", "person-"+person, "USER.md")
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte("- "+line+"\n"), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestUnlinkedFromThird links Bob to Ann and then both to Cleo. When Bob is unlinked, Ann and Cleo
// do not keep what he wrote as Ann's other account, and he does not get Ann's memory.
func TestUnlinkedFromThird(t *testing.T) {
	t.Parallel()
	const cleoID = 9
	var leaks atomic.Int64
	var apart atomic.Bool
	w := newWorld(t, worldOptions{answer: func(r openaitest.Request) openaitest.Reply {
		if apart.Load() && strings.Contains(r.Messages[0].Content, "zanzibar") {
			leaks.Add(1)
		}
		return say("ok")
	}})
	ids := w.approved(annID, bobID, cleoID)
	w.know(ids[0], "password: zanzibar")
	w.command("people", "link", ids[0], ids[1])
	w.wantReply(bobID, "hi from Bob", "ok")
	w.command("people", "link", ids[2], ids[0])
	w.command("people", "unlink", "telegram", strconv.Itoa(bobID))
	w.look(func(db *store.DB) {
		if n := w.count(db, fmt.Sprintf("inbox WHERE chat = '%d' AND state <> 'heard' AND "+
			"person IN (%s, %s)", bobID, ids[0], ids[2])); n > 0 {
			t.Errorf("%d messages in Bob's chat still belong to Ann or Cleo", n)
		}
	})
	apart.Store(true)
	w.wantReply(bobID, "hello again", "ok")
	if n := leaks.Load(); n > 0 {
		t.Errorf("%d requests for Bob contain Ann's memory", n)
	}
	apart.Store(false)
	w.wantReply(annID, "hello again", "ok")
	w.look(func(db *store.DB) {
		if n := w.count(db, "sessions WHERE scope = 'person-"+ids[2]+"'"); n == 0 {
			t.Error("Ann's conversation is not Cleo's")
		}
	})
}
