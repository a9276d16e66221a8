//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"gateway/bus"
	"gateway/store"
)

// TestBackupPlatforms is like TestBackup, but on Discord and WhatsApp. These platforms remember
// what they were sent, and they redeliver messages in their own ways.
//
// The gateway reads Discord's channels from the cursors in the backup. So the restored gateway
// gets all messages, and answers each once and in order. Messages that the old gateway answered
// after the backup are answered a second time.
//
// WhatsApp redelivers messages without an acknowledgement. The restored gateway does not get
// messages that the old gateway acknowledged after the backup. The old gateway may have answered
// some of these. The account is still linked, and its keys work with phones that have received
// messages since the backup.
//
// On both platforms, people don't see an answer twice if it is in the backup and the old gateway
// has sent it.
func TestBackupPlatforms(t *testing.T) {
	t.Parallel()
	for _, platform := range []struct {
		name  string
		chats int
		open  func(tr *trial) killPlatform
	}{
		{"discord", 20, func(tr *trial) killPlatform { return openKillDiscord(tr) }},
		{"whatsapp", 4, func(tr *trial) killPlatform { return openKillWhatsApp(tr) }},
	} {
		t.Run(platform.name, func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t, platform.chats)
			tr.platform = platform.open(tr)
			tr.meet()
			p := tr.start()
			p.ready()
			tr.platform.ready()
			late := tr.ledger.delay()
			defer late.release()
			tr.say(60)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := p.wait(ctx, func() bool { return p.logged("message received") >= 20 })
			if err != nil {
				t.Fatal(err)
			}
			until(t, "somebody to wait for long", late.reached)
			file := filepath.Join(t.TempDir(), "backup.tar.gz")
			if out, err := tr.gateway("backup", file); err != nil {
				t.Fatalf("backup: %v\n%s", err, out)
			}
			// The gateway accepts and answers some of these messages after the backup.
			answered, _, _ := tr.ledger.state()
			tr.say(30)
			tr.ledger.await(t, answered+5, p.done)
			p.kill()
			late.release()
			tr.moveHome(file)
			tr.afterMove(platform.name == "discord")
		})
	}
}

// afterMove runs a gateway with the restored data and checks the results. If all is true, the
// gateway must get all messages.
func (tr *trial) afterMove(all bool) {
	tr.t.Helper()
	known := make(map[string]bool) // texts of the deliveries in the backup
	open := 0
	tr.look(func(db *store.DB) {
		open = tr.count(db, "inbox WHERE state IN ('waiting', 'taken')") +
			tr.count(db, "outbox WHERE state <> 'sent'")
		var body []byte
		for range tr.query(db, []any{&body}, "SELECT body FROM outbox") {
			known[outbound(tr.t, body).Text] = true
		}
	})
	if open == 0 {
		tr.t.Error("all was answered when the backup was made: it proves nothing")
	}
	p := tr.start()
	p.ready()
	tr.platform.ready()
	newest := make(map[int64]int)
	tr.ledger.mu.Lock()
	before := tr.said()
	for chat, n := range tr.ledger.said {
		newest[chat] = n
	}
	tr.ledger.mu.Unlock()
	tr.say(20)
	tr.platform.rest()
	tr.ledger.mu.Lock()
	said := tr.said()
	tr.ledger.mu.Unlock()
	tr.eventually("all to be answered", func(db *store.DB) bool {
		n := tr.count(db, "inbox")
		return (!all || n == said) && n >= said-before &&
			tr.count(db, "outbox WHERE state IN ('waiting', 'sending')") == 0 &&
			tr.count(db, "turns WHERE state = 'running'") == 0 &&
			tr.count(db, "inbox WHERE state IN ('waiting', 'taken')") == 0
	})
	// Phones may have requested messages that they could not decrypt, so this can take a while.
	tr.eventually("people to see all answers", func(db *store.DB) bool {
		for chat, list := range tr.deliveries(db) {
			texts := tr.platform.texts(chat)
			for _, d := range list {
				if !slices.Contains(texts, d.text) {
					return false
				}
			}
		}
		return true
	})
	tr.platform.rest()
	tr.stop(p)
	tr.look(func(db *store.DB) {
		for _, rows := range []string{"inbox WHERE state <> 'done'", "turns WHERE state <> 'done'",
			"outbox WHERE state <> 'sent'", "previews"} {
			if got := tr.count(db, rows); got != 0 {
				tr.t.Errorf("%s: %d rows, want none", rows, got)
			}
		}
		deliveries := tr.deliveries(db)
		for chat, n := range tr.ledger.said {
			heard := tr.heard(db, chat)
			tr.checkSeen(chat, heard, deliveries[chat], known)
			first := newest[chat] + 1 // first message that the gateway must have received
			if all {
				first = 1
			}
			for i := first; i <= n; i++ {
				want := fmt.Sprintf("%d-%d", chat, i)
				if !slices.ContainsFunc(heard, func(m string) bool { return number(m) == want }) {
					tr.t.Errorf("%s was not heard; heard is %q", want, heard)
				}
			}
		}
	})
}

// heard returns the marks of a chat's messages in the inbox in their order.
func (tr *trial) heard(db *store.DB, chat int64) (list []string) {
	tr.t.Helper()
	at := tr.platform.address(chat)
	var body []byte
	for range tr.query(db, []any{&body}, "SELECT body FROM inbox "+
		"WHERE account = $1 AND chat = $2 ORDER BY id", at.Account, at.Chat) {
		var m bus.InboundMessage
		if err := json.Unmarshal(body, &m); err != nil {
			tr.t.Fatal(err)
		}
		list = append(list, marks(m.Text)...)
	}
	return list
}

// checkSeen checks that each received message of a chat is answered once and in order. People
// must see each answer once if the backup contains it, else at most once from each gateway.
func (tr *trial) checkSeen(
	chat int64, heard []string, all []delivery, known map[string]bool,
) {
	tr.t.Helper()
	var answered []string
	times := make(map[string]int)
	for _, text := range tr.platform.texts(chat) {
		times[text]++
	}
	for _, d := range all {
		answered = append(answered, marks(d.text)...)
		most := 2
		if known[d.text] {
			most = 1
		}
		if n := times[d.text]; n == 0 || n > most {
			tr.t.Errorf("chat %d sees %q %d times, want 1 to %d", chat, d.text, n, most)
		}
	}
	if !slices.Equal(answered, heard) {
		tr.t.Errorf("chat %d: answered are\n%q, want\n%q", chat, answered, heard)
	}
}
