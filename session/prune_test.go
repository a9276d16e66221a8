package session

import (
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/store"
)

// prune removes what is before a time and returns how many messages and turns.
func (f *fixture) prune(before time.Time) (messages, turns int) {
	f.t.Helper()
	f.must(f.tx(func(tx *store.Tx) (err error) {
		if messages, _, err = f.PruneMessages(tx, before, 0); err != nil {
			return err
		}
		turns, _, err = f.PruneTurns(tx, before, 0)
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

// left returns what is left of the messages of a conversation, whether or not a prompt holds it.
func (f *fixture) left(key Key) []string {
	f.t.Helper()
	entries, err := f.After(f.read(), key, 0, 100)
	f.must(err)
	return texts(entries)
}

// Of a conversation that has rested, only what the next prompt would hold is kept; of others,
// everything. Turns go with the last of their messages, and the conversation itself stays.
func TestPrune(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"rests", "left", "talks", "runs"} {
		f.talk(name, "first")
	}
	for _, name := range []string{"rests", "left"} { // their prompts begin anew
		f.must(f.tx(func(tx *store.Tx) error { return f.Reset(tx, KeyOf(at(name)), f.now) }))
	}
	f.talk("rests", "second")
	f.must(f.tx(func(tx *store.Tx) error { return f.Reset(tx, KeyOf(at("talks")), f.now) }))
	f.must(f.tx(func(tx *store.Tx) error { return f.Reset(tx, KeyOf(at("runs")), f.now) }))
	f.begin(at("runs"), "second") // and never ends
	sub := &Turn{Session: SubKey(KeyOf(at("talks")), "1"), Address: at("talks")}
	f.must(f.tx(func(tx *store.Tx) error {
		return f.Begin(tx, sub, "", lease, f.now, said("task"))
	}))
	f.must(f.end(sub, Done, "yes"))
	old := f.now
	f.now = f.now.Add(48 * time.Hour)
	f.talk("talks", "second")

	if m, n := f.prune(old); m != 0 || n != 0 {
		t.Errorf("at that time %d messages and %d turns went, want none", m, n)
	}
	// Two of each, of "rests" and "left", and of the sub-agent.
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
	if _, ok, err := f.Address(f.read(), KeyOf(at("left"))); !ok || err != nil {
		t.Errorf("there is no conversation any more: %v", err)
	}
	// Who comes back goes on as before.
	f.talk("left", "again")
	if got, want := f.left(KeyOf(at("left"))), []string{"again", "yes"}; !slices.Equal(got, want) {
		t.Errorf("left has %q, want %q", got, want)
	}
}
