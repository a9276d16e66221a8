package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/bus"
	"gateway/store"
	"gateway/store/plantest"
	"gateway/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// A fixture is a database with the tables of this package.
type fixture struct {
	t   *testing.T
	db  *store.DB
	now time.Time
}

var (
	chat  = bus.Address{Account: "test", Chat: "a"}
	lease = store.Lease{Owner: "me", Epoch: 3}
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"),
		[]store.Migration{Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t: t, db: db, now: time.UnixMilli(1_000_000)}
}

// tx runs fn in a transaction and returns its error.
func (f *fixture) tx(fn func(tx *store.Tx) error) error { return f.db.Tx(f.t.Context(), fn) }

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read() store.Queryer { return f.db.Read(f.t.Context()) }

// begin starts a turn at a with a message of the user.
func (f *fixture) begin(a bus.Address, text string) *Turn {
	f.t.Helper()
	turn := &Turn{Session: KeyOf(a), Address: a, ReplyTo: "9", Scope: "person-1"}
	f.must(f.tx(func(tx *store.Tx) error {
		return begin(tx, turn, "Title", lease, f.now, said(text))
	}))
	return turn
}

func (f *fixture) append(turn *Turn, texts ...string) error {
	return f.tx(func(tx *store.Tx) error { return Append(tx, turn, f.now, said(texts...)) })
}

func (f *fixture) end(turn *Turn, s State, text string) error {
	return f.tx(func(tx *store.Tx) error { return EndTurn(tx, turn, s, f.now, said(text)) })
}

// begin calls [BeginTurn] and ignores the entries that it returns.
func begin(tx *store.Tx, t *Turn, title string, lease store.Lease, now time.Time,
	first ...llm.Message,
) error {
	_, err := BeginTurn(tx, t, title, lease, now, first...)
	return err
}

// said returns a message of the user with these lines.
func said(lines ...string) llm.Message {
	return llm.Message{Role: llm.User, Text: strings.Join(lines, "\n")}
}

// texts returns the texts of the entries of a transcript.
func texts(entries []Entry) (list []string) {
	for _, e := range entries {
		list = append(list, e.Message.Text)
	}
	return list
}

// wantTranscript checks the entries in the prompt of a session.
func (f *fixture) wantTranscript(a bus.Address, want ...string) *Transcript {
	f.t.Helper()
	got, err := ReadTranscript(f.read(), KeyOf(a), 1<<20)
	f.must(err)
	if !slices.Equal(texts(got.Entries), want) || got.Truncated {
		f.t.Errorf("transcript of %s is %q, truncated %v, want %q",
			a, texts(got.Entries), got.Truncated, want)
	}
	return got
}

// The start of the gateway and /stop read running turns only, no matter how many have ended.
func TestRunningByIndex(t *testing.T) {
	f := newFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	_, err := RunningTasks(p, KeyOf(chat))
	f.must(err)
	if len(p.Seen) != 1 || !strings.Contains(p.Seen[0], "INDEX turns_running") {
		t.Errorf("the plans are %q, want one with the index turns_running", p.Seen)
	}
}

// The messages of a turn are found without reading those of the session's earlier turns.
func TestTurnByIndex(t *testing.T) {
	f := newFixture(t)
	other := bus.Address{Account: "test", Chat: "b"}
	for i := range 3 {
		f.begin(other, "user: elsewhere")
		turn := f.begin(chat, fmt.Sprint("user: ", i))
		f.begin(other, "user: elsewhere")
		f.must(f.append(turn, fmt.Sprint("assistant: ", i)))
		p := &plantest.Plans{Queryer: f.read(), T: t}
		start, err := TurnStart(p, turn)
		f.must(err)
		list, err := TurnMessages(p, turn)
		f.must(err)
		newest, err := NewestMessage(f.read(), KeyOf(chat))
		f.must(err)
		if len(list) != 2 || start != newest-2 {
			t.Errorf("turn %d has %+v from %d on, want two messages from %d on", i, list, start, newest-2)
		}
		for _, plan := range p.Seen {
			if !strings.Contains(plan, "INDEX messages_session (session=? AND id>?)") ||
				strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("the plan is %q, want one that begins at the turn", plan)
			}
		}
		f.must(f.end(turn, Done, "assistant: end"))
		list, err = TurnMessages(f.read(), turn)
		f.must(err)
		if len(list) != 3 {
			t.Errorf("turn %d has %+v at its end, want three messages", i, list)
		}
	}
}

// The choices of people are found by an index that has only sessions with a choice.
func TestChosenByIndex(t *testing.T) {
	f := newFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	_, err := Chosen(p)
	f.must(err)
	if len(p.Seen) != 1 || !strings.Contains(p.Seen[0], "INDEX sessions_chosen") {
		t.Errorf("the plans are %q, want one with the index sessions_chosen", p.Seen)
	}
}

// A chat has the sessions of its threads, members and jobs, but not those of chats whose names
// begin like its name. The same holds for people.
func TestOfChat(t *testing.T) {
	f := newFixture(t)
	thread := KeyOf(bus.Address{Account: "test", Chat: "a", Thread: "5"})
	want := []Key{KeyOf(chat), thread, thread.OfJob(7), KeyOf(chat).OfHook("h").OfTask("1")}
	want = append(want, Key{Conversation: chat, Speaker: "9"})
	mine := []Key{{Person: 1}, Key{Person: 1}.OfRun(3)}
	others := []Key{{Person: 11}, {Person: 10}}
	for _, name := range []string{"a0", "a!", "a\"", "a$", "a.", "aa", "b"} {
		others = append(others, KeyOf(bus.Address{Account: "test", Chat: name}))
	}
	for _, key := range slices.Concat(want, mine, others) {
		f.must(f.tx(func(tx *store.Tx) error {
			turn := Turn{Session: key, Address: bus.Address{Account: "test", Chat: "z"}}
			_, err := BeginTurn(tx, &turn, "Title", lease, f.now)
			return err
		}))
	}
	same := func(got []Key, err error, want []Key) {
		t.Helper()
		f.must(err)
		for _, key := range want {
			if !slices.Contains(got, key) {
				t.Errorf("the sessions %v lack %v", got, key)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d sessions %v, want %v", len(got), got, want)
		}
	}
	chats, err := OfChat(f.read(), chat)
	same(chats, err, want)
	people, err := OfPerson(f.read(), 1)
	same(people, err, mine)
	nobodys, err := OfPerson(f.read(), 0)
	same(nobodys, err, nil)
}

// The sessions of a chat and of a person are found by their names, no matter how many sessions
// there are.
func TestSessionsByIndex(t *testing.T) {
	f := newFixture(t)
	p := &plantest.Plans{Queryer: f.read(), T: t}
	_, err := OfChat(p, chat)
	f.must(err)
	_, err = OfPerson(p, 1)
	f.must(err)
	_, err = OfScope(p, "person-1")
	f.must(err)
	p.WantNoScan()
}

func (f *fixture) wantRunning(want ...int64) {
	f.t.Helper()
	list, err := RunningTurns(f.read())
	f.must(err)
	var got []int64
	for _, turn := range list {
		got = append(got, turn.ID)
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("turns %v are running, want %v", got, want)
	}
}

func TestKeyOf(t *testing.T) {
	for want, a := range map[string]bus.Address{
		"tg/42":   {Account: "tg", Chat: "42"},
		"tg/42/7": {Account: "tg", Chat: "42", Thread: "7"},
	} {
		if got := KeyOf(a).String(); got != want {
			t.Errorf("KeyOf(%+v) = %q, want %q", a, got, want)
		}
	}
}

func TestTurn(t *testing.T) {
	f := newFixture(t)
	turn := f.begin(chat, "one")
	if turn.ID == 0 || !turn.First || turn.Epoch != lease.Epoch || turn.Attempts != 1 {
		t.Errorf("Begin made it %+v", turn)
	}
	f.wantRunning(turn.ID)
	f.must(f.append(turn, "two"))
	f.must(f.tx(func(tx *store.Tx) error { // without messages, it only checks the turn
		return Append(tx, turn, f.now)
	}))
	turn.Answers = 1
	f.must(f.end(turn, Done, "three"))
	f.wantRunning()
	got := f.wantTranscript(chat, "one", "two", "three")
	for i, e := range got.Entries {
		if e.Turn != turn.ID || !e.Time.Equal(f.now) || e.Size == 0 ||
			i > 0 && e.ID <= got.Entries[i-1].ID {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
	second := f.begin(chat, "four")
	if second.First || second.ID <= turn.ID {
		t.Errorf("the second turn is %+v", second)
	}
	other := f.begin(bus.Address{Account: "test", Chat: "a", Thread: "1"}, "elsewhere")
	if !other.First {
		t.Error("the first turn of a thread is not the first of its session")
	}
	f.wantTranscript(chat, "one", "two", "three", "four")
	f.wantRunning(second.ID, other.ID)
	messages, err := TurnMessages(f.read(), turn)
	f.must(err)
	if len(messages) != 3 || messages[0].Text != "one" || messages[2].Text != "three" {
		t.Errorf("TurnMessages = %v, want those of the first turn", messages)
	}
}

// All fields of a message are read back as they were stored.
func TestMessageIsKeptWhole(t *testing.T) {
	f := newFixture(t)
	turn := f.begin(chat, "one")
	m := llm.Message{Role: llm.Assistant, Text: "a\x00b <&> \u2028 🎉", Reasoning: "hm",
		ToolCalls: []llm.ToolCall{{ID: "1", Name: "look", Arguments: "not json"}}}
	f.must(f.tx(func(tx *store.Tx) error { return Append(tx, turn, f.now, m) }))
	got, err := ReadTranscript(f.read(), KeyOf(chat), 1<<20)
	f.must(err)
	if got := fmt.Sprintf("%+v", got.Entries[1].Message); got != fmt.Sprintf("%+v", m) {
		t.Errorf("message is %s, want %+v", got, m)
	}
}

// A turn can't write after its end, or after another process has taken it over.
func TestEndedTurnIsRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		over func(f *fixture, turn *Turn) error
	}{
		{"done", func(f *fixture, turn *Turn) error { return f.end(turn, Done, "end") }},
		{"failed", func(f *fixture, turn *Turn) error { return f.end(turn, Failed, "end") }},
		{"stopped", func(f *fixture, turn *Turn) error {
			running, err := RunningTurn(f.read(), turn.Session)
			f.must(err)
			return f.end(running, Stopped, "end")
		}},
		{"taken over", func(f *fixture, turn *Turn) error {
			return f.tx(func(tx *store.Tx) error {
				taken := *turn
				next := store.Lease{Owner: "other", Epoch: lease.Epoch + 1}
				if err := TakeOver(tx, &taken, next, f.now); err != nil {
					return err
				}
				taken.Epoch = next.Epoch
				return Append(tx, &taken, f.now, said("end"))
			})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			turn := f.begin(chat, "one")
			f.must(test.over(f, turn))
			for name, err := range map[string]error{
				"Append": f.append(turn, "late"),
				"End":    f.end(turn, Done, "late"),
				"TakeOver": f.tx(func(tx *store.Tx) error {
					return TakeOver(tx, turn, store.Lease{Epoch: 9}, f.now)
				}),
			} {
				if !errors.Is(err, ErrEnded) {
					t.Errorf("%s = %v, want %v", name, err, ErrEnded)
				}
			}
			f.wantTranscript(chat, "one", "end")
		})
	}
}

func TestTakeOver(t *testing.T) {
	f := newFixture(t)
	turn := f.begin(chat, "one")
	f.must(f.append(turn, "two"))
	turn.Answers = 2
	f.must(f.append(turn, "three"))
	next := store.Lease{Owner: "other", Epoch: 4}
	f.must(f.tx(func(tx *store.Tx) error { return TakeOver(tx, turn, next, f.now) }))
	list, err := RunningTurns(f.read())
	f.must(err)
	want := Turn{ID: turn.ID, Session: KeyOf(chat), Address: chat, ReplyTo: "9", Epoch: 4,
		Attempts: 2, Answers: 2}
	if len(list) != 1 || list[0] != want {
		t.Errorf("RunningTurns = %+v, want %+v", list, want)
	}
	if one, err := RunningTurn(f.read(), KeyOf(chat)); err != nil || *one != want {
		t.Errorf("RunningTurn = %+v, %v, want %+v", one, err, want)
	}
	if none, err := RunningTurn(f.read(), named("test/b")); none != nil || err != nil {
		t.Errorf("RunningTurn of another session = %+v, %v", none, err)
	}
}

// If an older gateway left two running turns in one session, the first one counts.
func TestRunningTurnIsTheFirst(t *testing.T) {
	f := newFixture(t)
	first, _ := f.begin(chat, "one"), f.begin(chat, "two")
	if got, err := RunningTurn(f.read(), KeyOf(chat)); err != nil || got.ID != first.ID {
		t.Errorf("RunningTurn = %+v, %v, want turn %d", got, err, first.ID)
	}
}

func TestTranscriptSize(t *testing.T) {
	f := newFixture(t)
	turn := f.begin(chat, "0")
	for i := 1; i < 10; i++ {
		f.must(f.append(turn, fmt.Sprint(i)))
	}
	all := f.wantTranscript(chat, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	size := all.Entries[0].Size // the size of each message
	for _, test := range []struct {
		limit int
		want  int
	}{
		{0, 1}, {size - 1, 1}, {size, 1}, {2*size - 1, 1}, {2 * size, 2}, {9 * size, 9},
		{10*size - 1, 9}, {10 * size, 10},
	} {
		got, err := ReadTranscript(f.read(), KeyOf(chat), test.limit)
		f.must(err)
		want := texts(all.Entries[10-test.want:])
		if !slices.Equal(texts(got.Entries), want) || got.Truncated != (test.want < 10) {
			t.Errorf("Transcript of %d bytes = %q, truncated %v, want %q",
				test.limit, texts(got.Entries), got.Truncated, want)
		}
	}
}

func TestTranscriptAfter(t *testing.T) {
	f := newFixture(t)
	none, err := ReadTranscriptAfter(f.read(), KeyOf(chat), 0)
	if err != nil || len(none.Entries) != 0 || none.Start != 0 {
		t.Errorf("TranscriptAfter of no session = %+v, %v", none, err)
	}
	turn := f.begin(chat, "0")
	f.begin(bus.Address{Account: "test", Chat: "b"}, "elsewhere")
	f.must(f.append(turn, "1"))
	f.must(f.append(turn, "2"))
	all := f.wantTranscript(chat, "0", "1", "2")
	for n := range 4 {
		after := int64(0)
		if n > 0 {
			after = all.Entries[n-1].ID
		}
		got, err := ReadTranscriptAfter(f.read(), KeyOf(chat), after)
		f.must(err)
		want := texts(all.Entries[n:])
		if !slices.Equal(texts(got.Entries), want) || got.Follows != (n > 0) {
			t.Errorf("TranscriptAfter %d = %q, follows %v, want %q", after, texts(got.Entries),
				got.Follows, want)
		}
	}
	// Erased messages and those of other sessions don't count, even while their rows exist.
	f.must(f.tx(func(tx *store.Tx) error { return Erase(tx, KeyOf(chat)) }))
	f.begin(chat, "3")
	for _, id := range []int64{all.Entries[0].ID, all.Entries[0].ID + 1, all.Entries[2].ID} {
		got, err := ReadTranscriptAfter(f.read(), KeyOf(chat), id)
		if err != nil || got.Follows {
			t.Errorf("TranscriptAfter %d = %+v, %v, want that the message is gone", id, got, err)
		}
	}
}

// Reset and Compact move the start of the prompt. They delete nothing, and the start never moves
// back.
func TestResetAndCompact(t *testing.T) {
	f := newFixture(t)
	reset := func() {
		f.must(f.tx(func(tx *store.Tx) error { return Reset(tx, KeyOf(chat), f.now) }))
	}
	compact := func(before Summary, to int64, want bool) {
		t.Helper()
		var moved bool
		f.must(f.tx(func(tx *store.Tx) (err error) {
			moved, err = Compact(tx, KeyOf(chat), before, to, "notes", 7)
			return err
		}))
		if moved != want {
			t.Errorf("Compact after %d has moved: %v, want %v", before.Start, moved, want)
		}
	}
	reset() // the session does not exist yet
	turn := f.begin(chat, "0")
	f.must(f.append(turn, "1"))
	f.must(f.append(turn, "2"))
	all := f.wantTranscript(chat, "0", "1", "2")
	before := Summary{Scope: "person-1"}
	compact(Summary{Scope: "person-2"}, all.Entries[0].ID, false) // the scope is not the session's
	compact(before, all.Entries[2].ID+1000, false)                // this message doesn't exist
	compact(before, all.Entries[0].ID, true)
	got := f.wantTranscript(chat, "1", "2")
	if got.Start != all.Entries[0].ID {
		t.Errorf("the prompt begins after %d, want %d", got.Start, all.Entries[0].ID)
	}
	compact(before, all.Entries[1].ID, false) // these messages are notes already
	s, err := ReadSummary(f.read(), KeyOf(chat))
	f.must(err)
	if want := (Summary{"person-1", got.Start, "notes", 7}); s != want {
		t.Errorf("the summary is %+v, want %+v", s, want)
	}
	f.wantTranscript(chat, "1", "2")
	f.must(f.tx(func(tx *store.Tx) error {
		return Spend(tx, KeyOf(chat), Bill{Context: 77})
	}))
	reset()
	f.wantTranscript(chat)
	reset()
	f.must(f.append(turn, "3"))
	f.wantTranscript(chat, "3")
	info, err := ReadInfo(f.read(), KeyOf(chat))
	f.must(err)
	if info.Messages != 4 || info.Context != 0 {
		t.Errorf("after a reset there are %d messages and a context of %d, want 4 and 0",
			info.Messages, info.Context)
	}
}

// A transaction that fails leaves nothing of the turn that it began.
func TestBeginIsAllOrNothing(t *testing.T) {
	f := newFixture(t)
	errMine := errors.New("mine")
	err := f.tx(func(tx *store.Tx) error {
		turn := &Turn{Session: KeyOf(chat), Address: chat}
		if err := begin(tx, turn, "", lease, f.now, said("one")); err != nil {
			return err
		}
		return errMine
	})
	if !errors.Is(err, errMine) {
		t.Fatalf("Tx = %v", err)
	}
	f.wantRunning()
	f.wantTranscript(chat)
	if turn := f.begin(chat, "again"); !turn.First {
		t.Error("the turn that was undone counts")
	}
}

// An erased session is gone at once for every reader, also for a new session with the same name.
// Its rows are deleted in pieces, and others can write in between.
func TestEraseInPieces(t *testing.T) {
	f := newFixture(t)
	const turns = 40
	talk := func(a bus.Address, n int) {
		for range n {
			var list []string
			for i := range 25 {
				list = append(list, fmt.Sprint("user: zanzibar ", i))
			}
			turn := f.begin(a, "zanzibar")
			f.must(f.append(turn, list...))
			f.must(f.end(turn, Done, "ok"))
		}
	}
	other := bus.Address{Account: "test", Chat: "b"}
	talk(other, 1)
	talk(chat, turns)
	running := f.begin(chat, "zanzibar")
	old, err := ReadSummary(f.read(), KeyOf(chat))
	f.must(err)
	last, err := NewestMessage(f.read(), KeyOf(chat))
	f.must(err)
	f.must(f.tx(func(tx *store.Tx) error { return Erase(tx, KeyOf(chat)) }))
	rows := func(table string) (n int) {
		f.must(f.read().QueryRow("SELECT count(*) FROM "+table+" WHERE session = $1",
			KeyOf(chat).String()).Scan(&n))
		return n
	}
	wantGone := func(messages int) {
		t.Helper()
		info, err := ReadInfo(f.read(), KeyOf(chat))
		f.must(err)
		found, err := Search(f.read(), "zanzibar", KeyOf(chat).String(), 100)
		f.must(err)
		transcript, err := ReadTranscript(f.read(), KeyOf(chat), 1<<20)
		f.must(err)
		all, err := EntriesAfter(f.read(), KeyOf(chat), 0, 1000)
		f.must(err)
		first, err := KeepFrom(f.read(), KeyOf(chat), messages+1)
		f.must(err)
		if info.Messages != messages || len(found) > 0 || len(transcript.Entries) != messages ||
			len(all) != messages || first != 0 {
			t.Errorf("there are %d messages, %d found, %d in the transcript, %d in all, %d is kept; want %d",
				info.Messages, len(found), len(transcript.Entries), len(all), first, messages)
		}
	}
	wantGone(0)
	if err := f.append(running, "user: late"); !errors.Is(err, ErrEnded) {
		t.Errorf("a turn of it writes: %v", err)
	}
	if gone, err := TurnErased(f.read(), running.ID); err != nil || !gone {
		t.Errorf("a turn of it is not erased: %v", err)
	}
	f.begin(chat, "hello")
	wantGone(1)
	f.must(f.tx(func(tx *store.Tx) error {
		ok, err := Compact(tx, KeyOf(chat), old, last, "zanzibar", 0)
		if ok {
			t.Error("notes of what is erased are notes of what has begun anew")
		}
		return err
	}))
	pieces, most := 0, 0
	for more := true; more; pieces++ {
		before := rows("messages") + rows("turns")
		f.must(f.tx(func(tx *store.Tx) (err error) {
			more, err = settleSome(tx, 0)
			return err
		}))
		most = max(most, before-rows("messages")-rows("turns"))
		talk(other, 1) // others write between two pieces
		wantGone(1)
	}
	if left := rows("messages") + rows("turns"); left != 2 || most > 32+turns {
		t.Errorf("%d rows are left, %d went at once in %d pieces", left, most, pieces)
	}
	var rests int
	f.must(f.read().QueryRow("SELECT count(*) FROM session_rests").Scan(&rests))
	if rests > 0 {
		t.Errorf("%d rests are left", rests)
	}
}
