package background_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/bus"
	"gateway/store"
)

// A list is a store of tasks under test with a clock.
type list struct {
	t   *testing.T
	db  *store.DB
	now time.Time
	background.Store
}

func newList(t *testing.T) *list {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "gateway.db"),
		[]store.Migration{background.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &list{t: t, db: db, now: time.UnixMilli(1_800_000_000_000)}
}

func (l *list) tx(fn func(tx *store.Tx) error) {
	l.t.Helper()
	if err := l.db.Tx(context.Background(), fn); err != nil {
		l.t.Fatal(err)
	}
}

func (l *list) put(c background.Task, in time.Duration) {
	l.t.Helper()
	l.tx(func(tx *store.Tx) error { return l.Put(tx, c, l.now.Add(in)) })
}

// due returns the tasks that are due after a duration. It fails the test unless there are n
// tasks.
func (l *list) due(in time.Duration, n int) []background.Task {
	l.t.Helper()
	found, err := l.Due(l.db.Read(context.Background()), l.now.Add(in))
	if err != nil {
		l.t.Fatal(err)
	}
	if len(found) != n {
		l.t.Fatalf("%d tasks are due after %v, want %d: %+v", len(found), in, n, found)
	}
	return found
}

var dream = background.Work{Kind: background.Dream, Scope: "person-1"}

// A work has only one task. Putting it again keeps the earliest time and the state.
func TestPutAgain(t *testing.T) {
	l := newList(t)
	l.put(background.Task{Work: dream, State: []byte("begun")}, time.Hour)
	l.put(background.Task{Work: dream, State: []byte("anew")}, 2*time.Hour)
	l.due(time.Hour-time.Millisecond, 0)
	if c := l.due(time.Hour, 1)[0]; string(c.State) != "begun" || c.Notice != nil {
		t.Errorf("the task is %+v, want the first one", c)
	}
	tell := &bus.OutboundMessage{To: bus.Address{Account: "test", Chat: "a"}, ReplyTo: "7"}
	l.put(background.Task{Work: dream, Notice: tell}, 0)
	l.put(background.Task{Work: dream}, 0)
	if c := l.due(0, 1)[0]; c.Notice == nil || c.Notice.ReplyTo != "7" || c.Notice.To != tell.To {
		t.Errorf("it tells %+v, want %+v", c.Notice, tell)
	}
}

// A task that is put again while it runs is still there after Done.
func TestDone(t *testing.T) {
	l := newList(t)
	l.put(background.Task{Work: dream}, 0)
	c := l.due(0, 1)[0]
	l.tx(func(tx *store.Tx) error { return l.Save(tx, &c, []byte("half")) })
	l.put(background.Task{Work: dream}, time.Hour)
	l.tx(func(tx *store.Tx) error { return l.Done(tx, &c, l.now.Add(time.Minute)) })
	l.due(time.Minute-1, 0)
	c = l.due(time.Minute, 1)[0]
	if c.State != nil {
		t.Errorf("it begins from %q, want anew", c.State)
	}
	l.tx(func(tx *store.Tx) error { return l.Done(tx, &c, l.now) })
	l.due(time.Hour, 0)
	err := l.db.Tx(t.Context(), func(tx *store.Tx) error { return l.Save(tx, &c, nil) })
	if !errors.Is(err, background.ErrGone) {
		t.Errorf("saving one that is done: %v, want %v", err, background.ErrGone)
	}
}

func TestLaterAndAgain(t *testing.T) {
	l := newList(t)
	next := func(want time.Duration, there bool) {
		t.Helper()
		due, ok, err := l.Next(l.db.Read(t.Context()), time.UnixMilli(0))
		if err != nil || ok != there || ok && !due.Equal(l.now.Add(want)) {
			t.Errorf("the next one is due at %v, %v, %v, want %v after %v", due, ok, err, want, l.now)
		}
	}
	next(0, false)
	l.put(background.Task{Work: dream}, time.Hour)
	next(time.Hour, true)
	l.put(background.Task{Work: dream}, 0)
	next(0, true)
	c := l.due(0, 1)[0]
	l.tx(func(tx *store.Tx) error { return l.Postpone(tx, &c, l.now.Add(time.Minute)) })
	l.due(0, 0)
	if c = l.due(time.Minute, 1)[0]; c.Attempts != 1 {
		t.Errorf("%d attempts, want 1", c.Attempts)
	}
	l.tx(func(tx *store.Tx) error { return l.Continue(tx, &c, []byte("on"), l.now.Add(time.Hour)) })
	if c = l.due(time.Hour, 1)[0]; c.Attempts != 0 || string(c.State) != "on" {
		t.Errorf("it goes on from %q after %d attempts", c.State, c.Attempts)
	}
}

// Move gives the tasks of a scope to another one, except for tasks that the other scope already
// has.
func TestMove(t *testing.T) {
	l := newList(t)
	archive := background.Work{Kind: background.Archive, Scope: "chat-test+a", Session: "test/a",
		Ref: 3}
	l.put(background.Task{Work: archive, State: []byte("far")}, 0)
	l.put(background.Task{Work: background.Work{Kind: background.Dream, Scope: "chat-test+a"}}, 0)
	l.put(background.Task{Work: dream, State: []byte("own")}, 0)
	l.tx(func(tx *store.Tx) error { return l.Move(tx, "chat-test+a", "person-1") })
	states := map[background.Kind]string{}
	for range 2 {
		c := l.due(0, 1)[0]
		if c.Scope != "person-1" {
			t.Errorf("a task of %s is left", c.Scope)
		}
		states[c.Kind] = string(c.State)
		l.tx(func(tx *store.Tx) error { return l.Done(tx, &c, l.now) })
	}
	l.due(0, 0)
	if states[background.Archive] != "far" || states[background.Dream] != "own" {
		t.Errorf("states are %v", states)
	}
	l.put(background.Task{Work: dream}, 0)
	l.tx(func(tx *store.Tx) error { return l.Drop(tx, "person-1") })
	l.due(0, 0)
}

// Somebody who waits for a task gets its answer, although the other scope has such a task, for
// which somebody may wait, too.
func TestMoveOfAwaited(t *testing.T) {
	for _, both := range []bool{false, true} {
		l := newList(t)
		first, second := &bus.OutboundMessage{ReplyTo: "1"}, &bus.OutboundMessage{ReplyTo: "2"}
		awaited := background.Work{Kind: background.Dream, Scope: "chat-test+a"}
		l.put(background.Task{Work: awaited, Notice: first}, 0)
		other, want := background.Task{Work: dream}, []string{"1"}
		if both {
			other.Notice, want = second, []string{"1", "2"}
		}
		l.put(other, time.Hour)
		l.tx(func(tx *store.Tx) error { return l.Move(tx, "chat-test+a", "person-1") })
		var told []string
		for range 2 {
			c := l.due(time.Hour, 1)[0]
			if c.Notice != nil {
				told = append(told, c.Notice.ReplyTo)
			}
			l.tx(func(tx *store.Tx) error { return l.Done(tx, &c, l.now) })
		}
		if !slices.Equal(told, want) {
			t.Errorf("the answers %q are awaited, want %q", told, want)
		}
	}
}

// If a scope is moved while its task runs, the task starts anew in the other scope. The run in
// the old scope can't save its state.
func TestMoveOfWhatIsUnderWay(t *testing.T) {
	l := newList(t)
	archive := background.Work{Kind: background.Archive, Scope: "chat-test+a", Session: "test/a",
		Ref: 3}
	l.put(background.Task{Work: archive}, 0)
	c := l.due(0, 1)[0]
	l.tx(func(tx *store.Tx) error { return l.Move(tx, "chat-test+a", "person-1") })
	for name, do := range map[string]func(tx *store.Tx) error{
		"Save":     func(tx *store.Tx) error { return l.Save(tx, &c, []byte("far")) },
		"NoticeOf": func(tx *store.Tx) error { _, err := l.NoticeOf(tx, &c); return err },
	} {
		if err := l.db.Tx(t.Context(), do); !errors.Is(err, background.ErrGone) {
			t.Errorf("%s = %v, want %v", name, err, background.ErrGone)
		}
	}
	l.tx(func(tx *store.Tx) error { return l.Done(tx, &c, l.now) })
	l.tx(func(tx *store.Tx) error { return l.Postpone(tx, &c, l.now.Add(time.Hour)) })
	if c := l.due(0, 1)[0]; c.Scope != "person-1" || c.State != nil || c.Attempts != 0 {
		t.Errorf("what is to be done is %+v", c)
	}
}

// The task of a scope is due even if another scope has many tasks.
func TestDueOfManyScopes(t *testing.T) {
	l := newList(t)
	for ref := range int64(100) {
		log := background.Work{Kind: background.Log, Scope: "person-1", Ref: ref}
		l.put(background.Task{Work: log}, -time.Hour)
	}
	l.put(background.Task{Work: background.Work{Kind: background.Log, Scope: "person-2"}}, 0)
	list := l.due(0, 2)
	if list[0].Ref != 0 || list[1].Scope != "person-2" {
		t.Errorf("due are %+v", list)
	}
}

// A notice that is put while a task runs makes the next run due at once. A chat that was notified
// is not notified again.
func TestNotifyOnce(t *testing.T) {
	tell := func(id string) *bus.OutboundMessage {
		return &bus.OutboundMessage{Answers: []string{id}}
	}
	ends := map[string]func(l *list, c *background.Task, tx *store.Tx) error{
		"Done": func(l *list, c *background.Task, tx *store.Tx) error {
			return l.Done(tx, c, l.now.Add(time.Hour))
		},
		"Again": func(l *list, c *background.Task, tx *store.Tx) error {
			return l.Continue(tx, c, nil, l.now.Add(time.Hour))
		},
		"Later": func(l *list, c *background.Task, tx *store.Tx) error {
			return l.Postpone(tx, c, l.now.Add(time.Hour))
		},
	}
	for name, end := range ends {
		l := newList(t)
		l.put(background.Task{Work: dream}, 0)
		c := l.due(0, 1)[0]
		l.put(background.Task{Work: dream, Notice: tell("1")}, 0)
		l.tx(func(tx *store.Tx) error { return end(l, &c, tx) })
		if c = l.due(0, 1)[0]; c.Notice == nil || c.Attempts != 0 {
			t.Errorf("%s: who came meanwhile waits for %+v", name, c)
		}
		l.put(background.Task{Work: dream}, 0) // a background run puts it again, without a notice
		l.tx(func(tx *store.Tx) error { return l.MarkNotified(tx, &c) })
		l.tx(func(tx *store.Tx) error { return end(l, &c, tx) })
		l.due(0, 0)
		if c := l.due(time.Hour, 1)[0]; c.Notice != nil {
			t.Errorf("%s: who was told is told again", name)
		}
	}
}

// Least returns the smallest ref of a kind over all scopes.
func TestLeast(t *testing.T) {
	l := newList(t)
	least := func(want int64, there bool) {
		t.Helper()
		got, ok, err := l.Least(l.db.Read(t.Context()), background.Archive)
		if got != want || ok != there || err != nil {
			t.Errorf("Least = %d, %t, %v; want %d, %t", got, ok, err, want, there)
		}
	}
	l.put(background.Task{Work: background.Work{Kind: background.Compact, Scope: "a", Ref: 1}}, 0)
	least(0, false)
	l.put(background.Task{Work: background.Work{Kind: background.Archive, Scope: "a", Ref: 9}}, 0)
	l.put(background.Task{Work: background.Work{Kind: background.Archive, Scope: "b", Ref: 7}},
		time.Hour)
	least(7, true)
}
