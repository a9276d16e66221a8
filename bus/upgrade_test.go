package bus

import (
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"gateway/store"
)

// noteVersion is the last version of the tables in which a message had a note instead of an origin.
const noteVersion = 7

// Rows that an older version wrote keep their meaning, in each state.
func TestUpgradeFromNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	old := Migration
	old.Steps = old.Steps[:noteVersion]
	db, err := store.Open(t.Context(), path, []store.Migration{old}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const common = `"from":{"account":"x","chat":"a"},"sender":{"id":"7","name":"Ada"},"person":3,` +
		`"role":"user","time":"2026-05-04T03:02:01Z","addressed":true`
	rows := []struct {
		id, state, body string
		alone           int64
		want            Origin
	}{
		{"1", "taken", `{"id":"1",` + common + `,"text":"what is {\"note\":{\"kind\":\"job\"}}?"}`, -1,
			Origin{}},
		{"2", "heard", `{"id":"2",` + common + `,"text":"hi","group":true}`, 0, Origin{}},
		{"task:x/a:1-c", "taken", `{"id":"task:x/a:1-c",` + common + `,"text":"<look>","note":` +
			`{"kind":"task","label":"a look","session":"x/a#1-c","origin":"x/a","wanted":"c",` +
			`"unasked":true,"payer":9,"foreign":"the page \u003chttps://x\u003e"}}`, 3,
			Origin{Kind: Task, Label: "a look", Session: named("x/a#1-c"), Parent: named("x/a"), Call: "c",
				Background: true, Budget: 9, Foreign: "the page <https://x>"}},
		{"outcome:x/a:2", "waiting", `{"id":"outcome:x/a:2",` + common + `,"text":"found","note":` +
			`{"kind":"outcome","label":"a look","session":"x/a","payer":9}}`, 3,
			Origin{Kind: Outcome, Label: "a look", Session: named("x/a"), Parent: named("x/a"), Budget: 9}},
		{"run:4:1", "waiting", `{"id":"run:4:1",` + common + `,"text":"Reminder: call mum","note":` +
			`{"kind":"job","label":"call mum","run":4}}`, 3,
			Origin{Kind: Job, Label: "call mum", Run: 4, Reminder: true}},
		{"run:5:1", "done", `{"id":"run:5:1",` + common + `,"text":"look","note":` +
			`{"kind":"job","label":"look","session":"x/a#@job-2","run":5}}`, 3,
			Origin{Kind: Job, Label: "look", Session: named("x/a#@job-2"), Run: 5}},
		{"run:6:1", "waiting", `{"id":"run:6:1",` + common + `,"text":"look","note":` +
			`{"kind":"heartbeat","label":"heartbeat","session":"x/a#@job-3","run":6}}`, 3,
			Origin{Kind: Heartbeat, Label: "heartbeat", Session: named("x/a#@job-3"), Run: 6}},
		{"hook:h:1", "waiting", `{"id":"hook:h:1",` + common + `,"text":"down","note":` +
			`{"kind":"hook","label":"h"}}`, 3, Origin{Kind: Hook, Label: "h"}},
	}
	put := func(tx *store.Tx, chat, id, state, body string, alone int64) error {
		_, err := tx.Exec(`INSERT INTO inbox (account, chat, message, state, turn, body, received_ms,
			alone) VALUES ('x', $1, $2, $3, 1, $4, 5, $5)`, chat, id, state, body, alone)
		return err
	}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		for _, r := range rows {
			if err := put(tx, "a", r.id, r.state, r.body, r.alone); err != nil {
				return err
			}
		}
		return put(tx, "b", "broken", "bad", `{"id":`, -1)
	})
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}

	db, err = store.Open(t.Context(), path, []store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	q, in := db.Read(t.Context()), NewInbox()
	got, err := readInbox(q, "state <> 'bad' ORDER BY id")
	if err != nil || len(got) != len(rows) {
		t.Fatalf("read %d messages, %v; want %d", len(got), err, len(rows))
	}
	for i, r := range rows {
		m := got[i].Message
		if m.ID != r.id || !reflect.DeepEqual(m.Origin, r.want) || m.Person != 3 ||
			m.Sender.Name != "Ada" ||
			!m.Time.Equal(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)) {
			t.Errorf("message %s is %+v, want the origin %+v", r.id, m, r.want)
		}
	}
	checkUpgraded(t, in, q)
}

// checkUpgraded looks up the upgraded messages by their columns.
func checkUpgraded(t *testing.T, in *Inbox, q store.Queryer) {
	t.Helper()
	here := Address{Account: "x", Chat: "a"}
	if tasks, err := in.Tasks(q, named("x/a")); err != nil || len(tasks) != 1 || tasks[0].Waiting {
		t.Errorf("the tasks are %+v, %v; want the one that is taken", tasks, err)
	}
	if list, err := in.Outcomes(q, named("x/a")); err != nil || len(list) != 1 {
		t.Errorf("the outcomes are %+v, %v; want one", list, err)
	}
	if m, ok, err := LastMessage(q, here); err != nil || !ok || m.Message.ID != "1" {
		t.Errorf("the last message of a person is %+v, %v, %v; want 1", m, ok, err)
	}
	if group, _, err := GroupTitle(q, here); err != nil || !group {
		t.Errorf("the chat is a group: %v, %v; want true, as the newest message says", group, err)
	}
	if chats, err := DirectChats(q, 3); err != nil || !slices.Equal(chats, []Address{here}) {
		t.Errorf("the direct chats are %v, %v; want %v", chats, err, here)
	}
}
