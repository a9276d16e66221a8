package bus

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"gateway/store"
)

// An inboxFixture is an inbox with helpers that return the results of its methods.
type inboxFixture struct {
	*fixture
	*Inbox
	seq int // messages put by session
}

func newInboxFixture(t *testing.T) *inboxFixture {
	return &inboxFixture{fixture: newFixture(t), Inbox: NewInbox()}
}

// put adds a message and reports whether it is new.
func (f *inboxFixture) put(a Address, id, text string) (fresh bool) {
	f.t.Helper()
	f.tx(func(tx *store.Tx) (err error) {
		fresh, err = f.Put(tx, InboundMessage{ID: id, From: a, Text: text}, f.now)
		return err
	})
	return fresh
}

// ask runs one of the inbox's methods that return a bool.
func (f *inboxFixture) ask(method func(tx *store.Tx) (bool, error)) (yes bool) {
	f.t.Helper()
	f.tx(func(tx *store.Tx) (err error) {
		yes, err = method(tx)
		return err
	})
	return yes
}

func (f *inboxFixture) take(seq, turn int64) bool {
	return f.ask(func(tx *store.Tx) (bool, error) { return f.Claim(tx, seq, turn) })
}

func (f *inboxFixture) drop(seq int64) bool {
	return f.ask(func(tx *store.Tx) (bool, error) { return f.Drop(tx, seq) })
}

func (f *inboxFixture) answer(seq int64) bool {
	return f.ask(func(tx *store.Tx) (bool, error) { return f.Answer(tx, seq) })
}

func (f *inboxFixture) finish(turn int64) {
	f.t.Helper()
	f.tx(func(tx *store.Tx) error { return f.Finish(tx, turn) })
}

// waiting returns the texts of the messages that wait after a sequence number.
func (f *inboxFixture) waiting(after int64) []string {
	f.t.Helper()
	list, err := f.Waiting(f.read(), after)
	f.must(err)
	return received(list)
}

func (f *inboxFixture) takenBy(turn int64) []string {
	f.t.Helper()
	list, err := f.ClaimedBy(f.read(), turn)
	f.must(err)
	return received(list)
}

func received(list []Received) (texts []string) {
	for _, r := range list {
		texts = append(texts, r.Message.Text)
	}
	return texts
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Pitfall: "no de-duplication of platform ids, or only in memory".
func TestInboxPutsOnce(t *testing.T) {
	f := newInboxFixture(t)
	other := Address{Account: "test", Chat: "b"}
	second := Address{Account: "second", Chat: "a"}
	for i, test := range []struct {
		to    Address
		id    string
		fresh bool
	}{
		{chat, "1", true}, {chat, "1", false}, {chat, "2", true},
		{other, "1", true}, {second, "1", true}, {second, "1", false},
		// Platforms count messages in a chat, not in its threads.
		{Address{Account: "test", Chat: "a", Thread: "5"}, "1", false},
	} {
		if got := f.put(test.to, test.id, fmt.Sprint(i)); got != test.fresh {
			t.Errorf("Put %d of %s %s = %v, want %v", i, test.to, test.id, got, test.fresh)
		}
	}
	want(t, "waiting", f.waiting(0), "0", "2", "3", "4")
	f.take(1, 7)
	f.finish(7)
	if f.put(chat, "1", "again") {
		t.Error("a message that is done was put again")
	}
	want(t, "waiting", f.waiting(0), "2", "3", "4")
}

func TestInboxKeepsMessageWhole(t *testing.T) {
	f := newInboxFixture(t)
	m := InboundMessage{
		ID: "1", From: Address{Account: "test", Chat: "a", Thread: "5"},
		Sender: Sender{ID: "7", Name: "Ada <&> \u2028", Username: "ada"}, Role: "owner",
		Text: "a\x00b\n🎉", Time: time.Date(2026, 2, 16, 12, 51, 7, 0, time.UTC),
		Group: true, ChatTitle: "Friends", Addressed: true, Forwarded: "Eve",
		ReplyTo: &Quote{ID: "0", Sender: "Bob", Text: "what?", Ours: true,
			Attachments: []Attachment{{Kind: Voice, Ref: "v"}}},
		Attachments: []Attachment{{Kind: Photo, Name: "a.jpg", Type: "image/jpeg", Size: 7, Ref: "r"}},
		Album:       "al", Edits: "6", Person: 3,
	}
	f.tx(func(tx *store.Tx) error {
		_, err := f.Put(tx, m, f.now)
		return err
	})
	list, err := f.Waiting(f.read(), 0)
	f.must(err)
	got := list[0]
	if !reflect.DeepEqual(got.Message, m) || !got.At.Equal(f.now) || got.Seq != 1 {
		t.Errorf("Waiting = %+v, want %+v at %v", got, m, f.now)
	}
}

// A message waits, is claimed by one turn, and then is done. A waiting message can also be
// dropped or answered. No other change of state is possible.
func TestInboxStates(t *testing.T) {
	f := newInboxFixture(t)
	for i := 1; i <= 5; i++ {
		f.put(chat, fmt.Sprint(i), fmt.Sprint(i))
	}
	if !f.take(3, 7) || !f.take(1, 7) || !f.take(2, 8) || !f.drop(4) || !f.answer(5) {
		t.Fatal("a message that waits could not be taken, dropped or answered")
	}
	for seq := int64(1); seq <= 6; seq++ { // there is no message 6
		if f.take(seq, 9) || f.drop(seq) || f.answer(seq) {
			t.Errorf("message %d waits no more and was taken, dropped or answered", seq)
		}
	}
	want(t, "waiting", f.waiting(0))
	want(t, "taken by 7", f.takenBy(7), "1", "3")
	want(t, "taken by 9", f.takenBy(9))
	f.finish(7)
	f.finish(7)
	want(t, "taken by 7 in the end", f.takenBy(7))
	want(t, "taken by 8", f.takenBy(8), "2")
}

// A chat has unfinished work while a message waits, while a turn works on it, and until the
// answer is sent.
func TestHasUnfinished(t *testing.T) {
	f := newInboxFixture(t)
	owes := func(want bool, when string) {
		t.Helper()
		got, err := HasUnfinished(f.read(), chat)
		f.must(err)
		if got != want {
			t.Errorf("%s Owes = %t", when, got)
		}
	}
	other := chat
	other.Chat = "other"
	f.put(other, "1", "elsewhere")
	owes(false, "with a message of another chat")
	f.put(chat, "2", "here")
	owes(true, "with a message that waits")
	f.take(2, 1)
	owes(true, "with a message that is worked on")
	f.finish(1)
	owes(false, "with a message that is done")
	f.tx(func(tx *store.Tx) error {
		return NewOutbox().Put(tx, OutboundMessage{To: chat, Text: "an answer"}, f.now)
	})
	owes(true, "with an answer that is not sent")
}

// Waiting returns messages one page at a time, in the order of arrival.
func TestInboxWaitingInPages(t *testing.T) {
	f := newInboxFixture(t)
	const n = ReadLimit + 10
	f.tx(func(tx *store.Tx) error {
		for i := range n {
			m := InboundMessage{ID: fmt.Sprint(i), From: chat, Text: fmt.Sprint(i)}
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
		}
		return nil
	})
	first, err := f.Waiting(f.read(), 0)
	f.must(err)
	if len(first) != ReadLimit {
		t.Fatalf("the first page has %d messages, want %d", len(first), ReadLimit)
	}
	second, err := f.Waiting(f.read(), first[ReadLimit-1].Seq)
	f.must(err)
	for i, r := range append(first, second...) {
		if r.Message.Text != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, r.Message.Text)
		}
	}
	if len(second) != 10 {
		t.Errorf("the second page has %d messages, want 10", len(second))
	}
}

// Tasks and outcomes are found by the session that they belong to. A message of a person is
// never taken for one of them, even if its ID looks like one.
func TestInboxNotes(t *testing.T) {
	f := newInboxFixture(t)
	newest := func() (seq int64) {
		seq, err := f.Newest(f.db.Read(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	if got := newest(); got != 0 {
		t.Errorf("the newest of none is %d, want 0", got)
	}
	put := func(id string, origin Origin) int64 {
		f.tx(func(tx *store.Tx) error {
			_, err := f.Put(tx, InboundMessage{ID: id, From: Address{Account: "x", Chat: "a"},
				Origin: origin}, f.now)
			return err
		})
		return newest()
	}
	task := put(TaskID(named("x/a"), "1"), Origin{Kind: Task, Parent: named("x/a")})
	begun := put(TaskID(named("x/a"), "2"), Origin{Kind: Task, Parent: named("x/a")})
	outcome := put(OutcomeID(named("x/a"), "3"), Origin{Kind: Outcome, Parent: named("x/a")})
	seen := put(OutcomeID(named("x/a"), "4"), Origin{Kind: Outcome, Parent: named("x/a")})
	put(TaskID(named("x/a:b"), "1"), Origin{Kind: Task, Parent: named("x/a:b")})
	put(OutcomeID(named("x/a:b"), "1"), Origin{Kind: Outcome, Parent: named("x/a:b")})
	put(TaskID(named("x/a"), "5"), Origin{})
	last := put(OutcomeID(named("x/a"), "5"), Origin{})
	f.take(begun, 7)
	f.take(seen, 7)
	if got := newest(); got != last {
		t.Errorf("the newest is %d, want %d", got, last)
	}
	tasks, err := f.Tasks(f.db.Read(t.Context()), named("x/a"))
	if err != nil || len(tasks) != 2 || tasks[0].Seq != begun || tasks[0].Waiting ||
		tasks[1].Seq != task || !tasks[1].Waiting {
		t.Errorf("the tasks are %+v, %v, want %d, begun, and %d", tasks, err, begun, task)
	}
	outcomes, err := f.Outcomes(f.db.Read(t.Context()), named("x/a"))
	if err != nil || len(outcomes) != 1 || outcomes[0].Seq != outcome {
		t.Errorf("the outcomes are %+v, %v, want %d", outcomes, err, outcome)
	}
}

// named returns the session with a name, or the zero Session if the name is not valid.
func named(name string) Session {
	s, _ := ParseSession(name)
	return s
}

// When an account becomes another one of the platform, the IDs of its messages may occur again. No
// message is rewritten until its ID does, because all chats wait meanwhile.
func TestReplaceAccount(t *testing.T) {
	f := newInboxFixture(t)
	second := Address{Account: "second", Chat: "a"}
	f.put(chat, "1", "one")
	f.put(chat, "2", "two")
	f.put(second, "1", "elsewhere")
	task := InboundMessage{ID: "task:1", From: chat, Text: "task", Origin: Origin{Kind: Task}}
	put := func(m InboundMessage) bool {
		return f.ask(func(tx *store.Tx) (bool, error) { return f.Put(tx, m, f.now) })
	}
	put(task)
	replace := func() {
		t.Helper()
		var before, after int
		f.tx(func(tx *store.Tx) error {
			err := tx.QueryRow("SELECT total_changes()").Scan(&before)
			if err == nil {
				err = ReplaceAccount(tx, "test")
			}
			if err == nil {
				err = tx.QueryRow("SELECT total_changes()").Scan(&after)
			}
			return err
		})
		if after-before > 1 {
			t.Errorf("the change of the account has written %d rows, want one", after-before)
		}
	}
	find := func(id, want string) {
		t.Helper()
		m, found, err := FindMessage(f.read(), chat, id)
		f.must(err)
		has, err := Has(f.read(), chat, id)
		f.must(err)
		if m.Text != want || found != (want != "") || has != found {
			t.Errorf("message %s is %q, %t, %t, want %q", id, m.Text, found, has, want)
		}
	}
	find("1", "one")
	for _, text := range []string{"one of the next", "one of the last"} {
		replace()
		find("1", "")
		find("2", "")
		find("task:1", "task")
		for i, fresh := range []bool{true, false} {
			if got := f.put(chat, "1", text); got != fresh {
				t.Errorf("Put %d of %s = %t, want %t", i, text, got, fresh)
			}
		}
		find("1", text)
	}
	if f.put(second, "1", "again") || put(task) {
		t.Error("a message of another account or of the agent is new again")
	}
	want(t, "waiting", f.waiting(0), "one", "two", "elsewhere", "task", "one of the next",
		"one of the last")
}
