package bus

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"gateway/store"
	"gateway/store/plantest"
)

// The queries for unfinished messages read only these, through an index, no matter how many
// messages the inbox or the chat has. A page of them needs no sorting.
func TestUnfinishedByIndex(t *testing.T) {
	f := newInboxFixture(t)
	here := Address{Account: "x", Chat: "a"}
	for name, read := range map[string]func(q store.Queryer) error{
		"Waiting, in order": func(q store.Queryer) error {
			_, err := f.Waiting(q, 0)
			return err
		},
		"WaitingSince, in order": func(q store.Queryer) error {
			_, err := WaitingSince(q, f.now)
			return err
		},
		"ClaimedBy, in order": func(q store.Queryer) error {
			_, err := f.ClaimedBy(q, 1)
			return err
		},
		"Tasks": func(q store.Queryer) error {
			_, err := f.Tasks(q, named("x/a"))
			return err
		},
		"Outcomes": func(q store.Queryer) error {
			_, err := f.Outcomes(q, named("x/a"))
			return err
		},
		"Handed": func(q store.Queryer) error {
			_, err := f.Started(q)
			return err
		},
		"Suspects": func(q store.Queryer) error {
			_, err := f.Suspects(q, 1)
			return err
		},
		"Backlog": func(q store.Queryer) error {
			_, err := ReadBacklog(q)
			return err
		},
		"IsOpen": func(q store.Queryer) error {
			_, err := IsMessageOpen(q, "1")
			return err
		},
		"anyOf": func(q store.Queryer) error {
			_, err := anyRow(q, here, waitingThere, takenThere)
			return err
		},
		"openBefore": func(q store.Queryer) error {
			_, _, err := openBefore(q, &InboundMessage{From: here, Person: 1})
			return err
		},
		"DropAll, in order": func(q store.Queryer) error {
			_, err := readInbox(q, waitingInChat+" ORDER BY id", "x", "a", 1)
			return err
		},
	} {
		p := &plantest.Plans{Queryer: f.read(), T: t}
		f.must(read(p))
		if len(p.Seen) == 0 {
			t.Errorf("%s has no plan", name)
		}
		for _, plan := range p.Seen {
			sorts := strings.Contains(plan, "TEMP B-TREE")
			if !strings.Contains(plan, "INDEX inbox_open (state=?") ||
				sorts && strings.HasSuffix(name, "in order") {
				t.Errorf("%s: the plan is %q, want the index inbox_open", name, plan)
			}
		}
	}
}

// Deliveries that were not sent are listed without reading the others.
func TestListByIndex(t *testing.T) {
	f := newOutboxFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	for _, state := range []DeliveryState{Dead, Dropped, Waiting, Sending} {
		_, err := f.List(p, state, 10)
		f.must(err)
	}
	_, err := IsUnsent(p, Address{Account: "x", Chat: "a"})
	f.must(err)
	for i, want := range []string{"outbox_dead", "outbox_dropped", "outbox_chat", "outbox_chat",
		"outbox_chat (account=? AND chat=?)"} {
		if !strings.Contains(p.Seen[i], "INDEX "+want) {
			t.Errorf("the plan is %q, want the index %s", p.Seen[i], want)
		}
	}
}

// The message before a delivery is looked for among a bounded number of deliveries.
func TestLastSentIsBounded(t *testing.T) {
	f := newOutboxFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	_, err := f.LastSent(p, &Delivery{ID: 1})
	f.must(err)
	if !strings.Contains(p.Seen[0], "PRIMARY KEY (rowid>? AND rowid<?)") {
		t.Errorf("the plan is %q, want one with two bounds", p.Seen[0])
	}
}

// The messages of a person are found by an index, and their chats without reading the messages.
func TestPersonByIndex(t *testing.T) {
	f := newInboxFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	_, err := DirectChats(p, 1)
	f.must(err)
	if !strings.Contains(p.Seen[0], "COVERING INDEX inbox_person (person=? AND shared=?)") {
		t.Errorf("the plan of DirectChats is %q, want the index inbox_person alone", p.Seen[0])
	}
	p.Explain(moveMember, 1, 2, "x", true, "7", 0)
	if !strings.Contains(p.Seen[1], "INDEX inbox_person (person=? AND shared=? AND account=?)") {
		t.Errorf("the plan of MoveMember is %q, want the index inbox_person", p.Seen[1])
	}
	p.Explain(olderPage, 1, 2, "x", false, "a", 1, 9)
	p.Explain(moveOlder, 1, 2, "x", false, "a", 1, 9, "7")
	for _, plan := range p.Seen[2:] {
		if !strings.Contains(plan, "INDEX inbox_person (person=? AND shared=? AND account=? AND "+
			"chat=? AND rowid>? AND rowid<?)") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("the plan of MoveOlder is %q, want the index inbox_person", plan)
		}
	}
	p.Seen = p.Seen[:2]
	_, err = FinishedUpTo(p, "x", 1)
	f.must(err)
	if n := strings.Count(p.Seen[2], "INDEX inbox_open (state=?)"); n != 2 {
		t.Errorf("the plan of FinishedUpTo is %q, want the index inbox_open twice", p.Seen[2])
	}
	p.Seen = p.Seen[:2]
	_, err = newestIn(p, Address{Account: "x", Chat: "a"}, "origin = 'person'")
	f.must(err)
	if !strings.Contains(p.Seen[2], "COVERING INDEX sqlite_autoindex_inbox_1") {
		t.Errorf("the plan of newestIn is %q, want an index alone", p.Seen[2])
	}
}

// The gate finds the messages to which a message of a group belongs by an index.
func TestGroupByIndex(t *testing.T) {
	f := newInboxFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	m := &InboundMessage{From: Address{Account: "x", Chat: "a"}, Edits: "1"}
	none := func(*InboundMessage) bool { return false }
	_, err := HasUnanswered(p, m, none)
	f.must(err)
	_, err = HasForAgent(p, m, none)
	f.must(err)
	p.Explain("SELECT id FROM inbox WHERE "+ambientOf, "x", "a", "")
	for i, want := range []string{
		"INDEX sqlite_autoindex_inbox_1 (account=? AND chat=? AND message>? AND message<?)",
		"COVERING INDEX sqlite_autoindex_inbox_1 (account=? AND chat=?)",
		"INDEX inbox_heard (account=? AND chat=? AND thread=?)",
	} {
		if !strings.Contains(p.Seen[i], want) || strings.Contains(p.Seen[i], "SCAN inbox") {
			t.Errorf("the plan is %q, want %s", p.Seen[i], want)
		}
	}
}

// The newest message before a time is found through the ids, no matter how many messages came
// later. The search skips the ids of deleted messages.
func TestLastAccepted(t *testing.T) {
	f := newInboxFixture(t)
	start, here := f.now, Address{Account: "x", Chat: "a"}
	ask := func(before time.Time) time.Time {
		p := &plantest.Plans{Queryer: f.read(), T: t}
		at, err := LastAccepted(p, before)
		f.must(err)
		for _, plan := range p.Seen {
			if plan != "SEARCH inbox" && !strings.Contains(plan, "PRIMARY KEY (rowid<?)") {
				t.Fatalf("the plan is %q, want one that reads one row", plan)
			}
		}
		return at
	}
	if at := ask(start); !at.IsZero() {
		t.Errorf("the newest message of an empty inbox was accepted at %v", at)
	}
	const messages = 50
	for i := range messages {
		f.now = start.Add(time.Duration(i/2) * time.Second) // pairs have the same time
		f.put(here, strconv.Itoa(i), "hello")
	}
	f.tx(func(tx *store.Tx) error {
		_, err := tx.Exec("DELETE FROM inbox WHERE id <= 4 OR id BETWEEN 11 AND 20")
		return err
	})
	for second := range messages/2 + 2 {
		want := start.Add(time.Duration(min(second, messages/2)-1) * time.Second)
		switch {
		case second <= 2:
			want = time.Time{}
		case second > 5 && second <= 10:
			want = start.Add(4 * time.Second)
		}
		if at := ask(start.Add(time.Duration(second) * time.Second)); !at.Equal(want) {
			t.Errorf("before second %d: %v, want %v", second, at, want)
		}
	}
	last := start.Add((messages/2 - 1) * time.Second)
	if at := ask(time.UnixMilli(math.MaxInt64)); !at.Equal(last) {
		t.Errorf("the newest message of all was accepted at %v, want %v", at, last)
	}
}

// Messages that waited or were claimed when an older version ended are finished after the
// upgrade.
func TestUpgradeFromTwoIndexes(t *testing.T) {
	const twoIndexes = 10 // the version of the tables that had one index for each state
	f := newUpgradeFixture(t, twoIndexes, `
		INSERT INTO inbox (account, chat, message, state, turn, body, received_ms) VALUES
		('x', 'a', '1', 'done', 1, '{"id":"1","text":"one"}', 5),
		('x', 'a', '2', 'taken', 2, '{"id":"2","text":"two"}', 5),
		('x', 'a', '3', 'waiting', 0, '{"id":"3","text":"three"}', 5),
		('x', 'a', '4', 'waiting', 2, '{"id":"4","text":"four"}', 5)`)
	want(f.t, "waiting", f.waiting(0), "three", "four")
	want(f.t, "taken", f.takenBy(2), "two")
	f.finish(2)
	if !f.take(3, 3) || !f.take(4, 3) {
		t.Error("what waited can't be claimed")
	}
	want(f.t, "taken by the next turn", f.takenBy(3), "three", "four")
	f.finish(3)
	if !f.put(Address{Account: "x", Chat: "a"}, "5", "five") {
		t.Error("a new message is taken for an old one")
	}
	want(f.t, "waiting at last", f.waiting(0), "five")
}

// newUpgradeFixture returns an inbox in a database that an older version made and that has these
// rows.
func newUpgradeFixture(t *testing.T, version int, rows string) *inboxFixture {
	t.Helper()
	old := Migration
	old.Steps = old.Steps[:version]
	path := t.TempDir() + "/old.db"
	db, err := store.Open(t.Context(), path, []store.Migration{old}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(rows)
		return err
	})
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		db, err = store.Open(t.Context(), path, []store.Migration{Migration}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &inboxFixture{fixture: &fixture{t: t, db: db, now: time.UnixMilli(1_000_000)},
		Inbox: NewInbox()}
}
