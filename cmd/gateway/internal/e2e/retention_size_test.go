package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/bus/bustest"
	"gateway/session"
	"gateway/store"
)

// TestDatabaseStaysBounded checks that the database stays below its limit while people write.
// Finished data is removed, both old and new, but dead letters and messages in the prompt stay.
// Every message is answered exactly once.
func TestDatabaseStaysBounded(t *testing.T) {
	t.Parallel()
	const (
		bound = 3 << 20
		chats = 8
		times = 50
		long  = 4000 // characters of a message
		// Messages before the start of a prompt never expire by age. So a pass finds the database too
		// large even if other rows are added slowly.
		old = 1200
	)
	w := newWorld(t, worldOptions{agent: "waiting = 1000\n[memory]\nidle = \"0s\"\n" +
		"[retention]\nmessages = \"240h\"\nmax_total_mb = 3"})
	first := w.start()
	first.ready()
	w.telegram.Say(1, 1, "what I said first")
	w.eventually("the first answer to be noted", func(db *store.DB) bool {
		return w.count(db, "outbox WHERE state = 'sent'") == 1
	})
	first.kill()
	w.stockUp(old, long)
	// For the next gateway, a second is two days. So messages expire after five seconds.
	p := w.start(fmt.Sprintf("GATEWAY_TIME_SCALE=%d", 48*time.Hour/time.Second))
	p.ready()
	for n := range times {
		for chat := int64(1); chat <= chats; chat++ {
			// A command adds nothing to the transcript, whose messages could not be removed.
			w.telegram.Say(chat, chat, fmt.Sprintf("/whoami %d-%d %s", chat, n,
				strings.Repeat("x", long)))
		}
		w.await("the answers", func() bool { return w.answered(chats, n+1) })
	}
	var used int64
	w.eventually("the database to be small enough", func(db *store.DB) bool {
		var err error
		if used, err = db.Used(t.Context()); err != nil {
			t.Fatal(err)
		}
		return used <= bound && p.logged("rows removed because the database was too large") > 0 &&
			w.count(db, "messages WHERE session = 'telegram/old'") < old &&
			w.count(db, "inbox WHERE state = 'done' AND chat <> 'old'") < chats*times
	})
	for chat := int64(1); chat <= chats; chat++ {
		want := times
		if chat == 1 {
			want++
		}
		if got := w.telegram.SentCount(chat); got != want {
			t.Errorf("chat %d has got %d answers, want %d", chat, got, want)
		}
	}
	w.look(func(db *store.DB) {
		if n := w.count(db, "outbox WHERE state = 'dead'"); n != 1 {
			t.Errorf("there are %d dead letters, want 1", n)
		}
		list, err := session.ReadTranscript(db.Read(t.Context()),
			bustest.Session("telegram/1"), 1<<20)
		if err != nil || len(list.Entries) != 2 {
			t.Errorf("the transcript is %v, %v; want what was said first", list, err)
		}
	})
}

// answered reports whether each chat has received n answers. Chat 1 must have one more: the first
// answer of the test.
func (w *world) answered(chats int64, n int) bool {
	for chat := int64(1); chat <= chats; chat++ {
		want := n
		if chat == 1 {
			want++
		}
		if w.telegram.SentCount(chat) < want {
			return false
		}
	}
	return true
}

// stockUp fills the database with data that was finished three days ago: rows of each table and a
// dead letter.
func (w *world) stockUp(rows, long int) {
	w.t.Helper()
	body, at := strings.Repeat("x", long), time.Now().Add(-72*time.Hour).UnixMilli()
	insert := func(tx *store.Tx, query string, args ...any) {
		if _, err := tx.Exec(query, args...); err != nil {
			w.t.Fatal(err)
		}
	}
	w.look(func(db *store.DB) {
		err := db.Tx(w.t.Context(), func(tx *store.Tx) error {
			for n := range rows {
				insert(tx, `INSERT INTO inbox (account, chat, message, state, body, received_ms)
					VALUES ('telegram', 'old', $1, 'done', $2, $3)`, fmt.Sprint(n), body, at)
				insert(tx, `INSERT INTO outbox (account, chat, state, body, created_ms, updated_ms)
					VALUES ('telegram', 'old', 'sent', $1, $2, $2)`, body, at)
				insert(tx, `INSERT INTO messages (session, turn, body, created_ms)
					VALUES ('telegram/old', 0, $1, $2)`, body, at)
			}
			insert(tx, `UPDATE outbox SET state = 'dead'
				WHERE id = (SELECT min(id) FROM outbox WHERE chat = 'old')`)
			insert(tx, `INSERT INTO sessions (key, account, chat, thread, title, start, created_ms,
				updated_ms) SELECT 'telegram/old', 'telegram', 'old', '', '', max(id), $1, $1
				FROM messages`, at)
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	})
}
