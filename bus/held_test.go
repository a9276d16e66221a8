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
