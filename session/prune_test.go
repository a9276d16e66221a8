package session

import (
	"math"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
)

// prune removes old messages and turns, and returns how many of each it removed.
func (f *fixture) prune(before time.Time) (messages, turns int) {
	f.t.Helper()
	f.must(f.tx(func(tx *store.Tx) (err error) {
		if messages, _, err = PruneMessages(tx, math.MaxInt64, before, 0); err != nil {
			return err
		}
		turns, _, err = PruneTurns(tx, before, 0)
		return err
	}))
	return messages, turns
}

// talk runs a turn at a chat.
func (f *fixture) talk(name, text string) {
	f.t.Helper()
	f.must(f.end(f.begin(at(name), text), Done, "yes"))
}

func at(name string) bus.Address { return bus.Address{Account: "test", Chat: name} }

// left returns the messages of a conversation that were not removed, also those that are no
// longer in the prompt.
func (f *fixture) left(key Key) []string {
	f.t.Helper()
	entries, err := EntriesAfter(f.read(), key, 0, 100)
	f.must(err)
	return texts(entries)
}

// If a conversation is idle, only the messages of its next prompt are kept. If it is not idle,
// all messages are kept. A turn is removed with the last of its messages. The conversation
// itself is kept.
func TestPrune(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"rests", "left", "talks", "runs"} {
		f.talk(name, "first")
	}
	for _, name := range []string{"rests", "left"} { // their next prompts begin anew
		f.must(f.tx(func(tx *store.Tx) error { return Reset(tx, KeyOf(at(name)), f.now) }))
	}
	f.talk("rests", "second")
	f.must(f.tx(func(tx *store.Tx) error { return Reset(tx, KeyOf(at("talks")), f.now) }))
	f.must(f.tx(func(tx *store.Tx) error { return Reset(tx, KeyOf(at("runs")), f.now) }))
	f.begin(at("runs"), "second") // this turn never ends
	sub := &Turn{Session: KeyOf(at("talks")).OfTask("1"), Address: at("talks")}
	f.must(f.tx(func(tx *store.Tx) error {
		return begin(tx, sub, "", lease, f.now, said("task"))
	}))
	f.must(f.end(sub, Done, "yes"))
	old := f.now
	f.now = f.now.Add(48 * time.Hour)
	f.talk("talks", "second")

	if m, n := f.prune(old); m != 0 || n != 0 {
		t.Errorf("at that time %d messages and %d turns went, want none", m, n)
	}
	// Two messages each were removed from "rests", from "left" and from the sub-agent.
	if m, n := f.prune(f.now.Add(-24 * time.Hour)); m != 6 || n != 3 {
		t.Errorf("%d messages and %d turns went, want 6 and 3", m, n)
	}
	for name, want := range map[string][]string{
		"rests": {"second", "yes"}, "left": nil, "talks": {"first", "yes", "second", "yes"},
		"runs": {"first", "yes", "second"},
	} {
		if got := f.left(KeyOf(at(name))); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if got := f.left(sub.Session); got != nil {
		t.Errorf("the sub-agent has %q, want nothing", got)
	}
	if _, ok, err := Named(f.read(), KeyOf(at("left")).String()); !ok || err != nil {
		t.Errorf("there is no conversation any more: %v", err)
	}
	// A person who comes back can go on as before.
	f.talk("left", "again")
	if got, want := f.left(KeyOf(at("left"))), []string{"again", "yes"}; !slices.Equal(got, want) {
		t.Errorf("left has %q, want %q", got, want)
	}
}

// To free space, PruneArchived also removes messages before the start of the prompt from
// conversations that are not idle. It keeps the messages of a running turn, and those of which
// notes are still to be made. It keeps the conversations of jobs and hooks, which their next
// runs continue, but removes those of sub-agents.
func TestPruneArchived(t *testing.T) {
	f := newFixture(t)
	reset := func(key Key) {
		t.Helper()
		f.must(f.tx(func(tx *store.Tx) error { return Reset(tx, key, f.now) }))
	}
	chat := KeyOf(at("goes on"))
	f.talk("goes on", "first")
	reset(chat)
	f.begin(at("runs"), "first")
	reset(KeyOf(at("runs")))
	below := map[Key]bool{
		chat.OfJob(1): false, chat.OfHook("x"): false, chat.OfTask("1"): true,
		chat.OfJob(1).OfTask("2"): true, chat.OfHook("x").OfTask("3"): true}
	for key := range below {
		turn := &Turn{Session: key, Address: at("goes on")}
		f.must(f.tx(func(tx *store.Tx) error {
			return begin(tx, turn, "", lease, f.now, said("task"))
		}))
		f.must(f.end(turn, Done, "yes"))
	}
	f.talk("noted", "first")
	reset(KeyOf(at("noted")))
	newest, err := NewestMessage(f.read(), KeyOf(at("noted")))
	f.must(err)
	f.now = f.now.Add(48 * time.Hour)
	f.talk("goes on", "second")
	prune := func(below int64, want int) {
		t.Helper()
		f.must(f.tx(func(tx *store.Tx) error {
			n, _, err := PruneArchived(tx, below, f.now.Add(-24*time.Hour), 0)
			if n != want {
				t.Errorf("%d messages went, want %d", n, want)
			}
			return err
		}))
	}
	prune(newest, 2+3*2+1)
	prune(newest+1, 1)
	for key, over := range below {
		if got := f.left(key); (got == nil) != over {
			t.Errorf("%s has %q; it goes: %t", key, got, over)
		}
	}
	for name, want := range map[string][]string{
		"goes on": {"second", "yes"}, "runs": {"first"}, "noted": nil,
	} {
		if got := f.left(KeyOf(at(name))); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	// PruneMessages, which looks only at the age, keeps them as well.
	f.must(f.tx(func(tx *store.Tx) error {
		_, _, err := PruneMessages(tx, math.MaxInt64, f.now.Add(-24*time.Hour), 0)
		return err
	}))
	if got := f.left(chat.OfJob(1)); len(got) != 2 {
		t.Errorf("the job has %q, want what it goes on with", got)
	}
}
