package bus

import (
	"slices"
	"strings"
	"testing"

	"gateway/store"
	"gateway/store/plantest"
)

// Held messages are not handed out until they are taken and put, and neither is a repetition of
// one. The platform's ids stay recognised.
func TestHeld(t *testing.T) {
	f := newInboxFixture(t)
	here := Address{Account: "test", Chat: "a"}
	hold := func(at Address, id, text string) bool {
		return f.ask(func(tx *store.Tx) (bool, error) {
			return f.PutHeld(tx, InboundMessage{ID: id, From: at, Text: text}, f.now)
		})
	}
	hold(here, "1", "one")
	hold(Address{Account: "test", Chat: "b"}, "1", "another chat")
	hold(Address{Account: "other", Chat: "a"}, "1", "another account")
	if !hold(here, "2", "two") || hold(here, "2", "two again") || f.put(here, "2", "two again") {
		t.Error("PutHeld or Put does not tell new messages from old ones")
	}
	edit := InboundMessage{ID: "2:e1", From: here, Edits: "2"}
	found, err := HasUnanswered(f.read(), &edit, func(*InboundMessage) bool { return true })
	if f.must(err); !found {
		t.Error("a held message counts as answered")
	}
	f.put(here, "3", "three")
	if got := f.waiting(0); !slices.Equal(got, []string{"three"}) {
		t.Errorf("%q wait", got)
	}
	f.tx(func(tx *store.Tx) error {
		list, err := TakeHeld(tx, "test", func(held []InboundMessage) []InboundMessage {
			return []InboundMessage{held[2], held[0]}
		})
		for _, m := range list {
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
		}
		return err
	})
	if got := f.waiting(0); !slices.Equal(got, []string{"three", "two", "one"}) {
		t.Errorf("%q wait", got)
	}
	if f.put(here, "1", "one again") {
		t.Error("a message that was held is stored twice")
	}
	p := &plantest.Plans{Queryer: f.read(), T: t}
	rest, err := readInbox(p, heldOf, "test")
	if f.must(err); len(rest) != 1 || rest[0].Message.Text != "another chat" {
		t.Errorf("%+v are held", rest)
	}
	for _, plan := range p.Seen {
		if !strings.Contains(plan, "INDEX inbox_held") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("the plan is %q, want the index inbox_held in its order", plan)
		}
	}
}

// release takes all held messages of an account and puts them.
func (f *inboxFixture) release(account string) {
	f.t.Helper()
	f.tx(func(tx *store.Tx) error {
		list, err := TakeHeld(tx, account, func(held []InboundMessage) []InboundMessage { return held })
		for _, m := range list {
			if _, err := f.Put(tx, m, f.now); err != nil {
				return err
			}
		}
		return err
	})
}

// A message that was dropped while it was held, because its chat is erased, is not released.
func TestDropHeld(t *testing.T) {
	f := newInboxFixture(t)
	here := Address{Account: "test", Chat: "a"}
	f.tx(func(tx *store.Tx) error {
		if _, err := f.PutHeld(tx, InboundMessage{ID: "1", From: here, Text: "one"}, f.now); err != nil {
			return err
		}
		upTo, err := f.Newest(tx)
		if err != nil {
			return err
		}
		dropped, err := f.DropAll(tx, here, upTo)
		if len(dropped) != 1 {
			t.Errorf("%+v are dropped, want the held message", dropped)
		}
		return err
	})
	f.release("test")
	if got := f.waiting(0); len(got) > 0 {
		t.Errorf("%q wait", got)
	}
}

// A released message keeps its place in the order in which the messages came.
func TestHeldCame(t *testing.T) {
	f := newInboxFixture(t)
	here := Address{Account: "test", Chat: "a"}
	f.ask(func(tx *store.Tx) (bool, error) {
		return f.PutHeld(tx, InboundMessage{ID: "1", From: here}, f.now)
	})
	f.put(here, "2", "two")
	f.release("test")
	list, err := f.Waiting(f.read(), 0)
	if f.must(err); len(list) != 2 || list[0].Came() != list[0].Seq || list[1].Came() >= list[0].Seq {
		t.Errorf("%+v wait, want the second one to have come before the first", list)
	}
}
