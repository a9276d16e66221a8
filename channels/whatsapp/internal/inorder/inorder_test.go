package inorder_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/channeltest"
	"gateway/channels/whatsapp/internal/inorder"
)

const limit = 10 * time.Second

var ann = inorder.Sender{Chat: "chat", ID: "ann"}

// A fixture is a Keeper that stores messages in an inbox.
type fixture struct {
	*inorder.Keeper
	t    *testing.T
	in   channeltest.Inbox
	late int   // number of late batches
	err  error // of publish
}

func inBubble(t *testing.T, test func(f *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t}
		f.Keeper = inorder.New(limit, func(b channels.Batch, late bool) error {
			if late {
				f.late++
			}
			if f.err != nil {
				return f.err
			}
			return f.in.Publish(t.Context(), b)
		})
		defer f.Stop()
		test(f)
	})
}

// say publishes a message whose text is the platform's id.
func (f *fixture) say(s inorder.Sender, id string) error {
	return f.Publish(id, bus.InboundMessage{ID: s.ID + "/" + id, Text: id,
		From: bus.Address{Chat: s.Chat}, Sender: bus.Sender{ID: s.ID}}, id == "urgent")
}

func (f *fixture) want(ids ...string) {
	f.t.Helper()
	synctest.Wait()
	var got []string
	for _, m := range f.in.Messages() {
		got = append(got, m.Text)
	}
	if !slices.Equal(got, ids) {
		f.t.Errorf("the agent got %q, want %q", got, ids)
	}
}

// Messages reach the agent in the order in which they came first, no matter in which order the
// missing ones come.
func TestOrder(t *testing.T) {
	for _, later := range [][]string{{"1", "3"}, {"3", "1"}} {
		inBubble(t, func(f *fixture) {
			f.say(ann, "0")
			f.Await(ann, "1")
			f.say(ann, "2")
			f.Await(ann, "3")
			f.Await(ann, "1") // again, because it was sent again and can't be decrypted again
			f.say(ann, "4")
			f.say(ann, "4")
			f.want("0")
			f.say(ann, later[0])
			f.want("0")
			f.say(ann, later[1])
			f.want("0", "1", "2", "3", "4")
			f.say(ann, "5")
			f.want("0", "1", "2", "3", "4", "5")
		})
	}
}

// Only the sender's own messages in the same chat wait, even if somebody repeats the id of a
// missing message.
func TestOthers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		eve, group := inorder.Sender{Chat: "chat", ID: "eve"}, inorder.Sender{Chat: "group", ID: "ann"}
		f.Await(eve, "1")
		f.Await(ann, "1")
		f.say(ann, "2")
		f.say(eve, "1")
		if err := f.Skip(group, "1"); err != nil {
			t.Fatal(err)
		}
		f.say(group, "3")
		f.want("1", "3")
		f.say(ann, "1")
		f.want("1", "3", "1", "2")
	})
}

// A message is not waited for again if a further copy of it can't be decrypted.
func TestCopies(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.Await(ann, "1")
		f.say(ann, "1")
		f.Await(ann, "1")
		f.say(ann, "2")
		f.Await(ann, "3")
		time.Sleep(limit)
		f.Await(ann, "3")
		f.say(ann, "4")
		f.want("1", "2", "4")
	})
}

// An urgent message waits for no other, and comes after the held ones.
func TestUrgent(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.Await(ann, "1")
		f.say(ann, "2")
		f.say(ann, "urgent")
		f.want("2", "urgent")
		f.say(ann, "3")
		f.say(ann, "1")
		f.want("2", "urgent", "3", "1")
	})
}

// A missing message that turns out to be none for the agent no longer holds the others.
func TestNothing(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.Await(ann, "1")
		f.say(ann, "2")
		for _, id := range []string{"0", "1"} {
			f.want()
			if err := f.Skip(ann, id); err != nil {
				t.Fatal(err)
			}
		}
		if f.want("2"); f.Waits() {
			t.Error("it still waits")
		}
	})
}

// Messages wait for a limited time, counted from the first missing one.
func TestLimit(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.Await(ann, "1")
		time.Sleep(limit - time.Nanosecond)
		f.say(ann, "2")
		f.Await(ann, "3")
		f.want()
		time.Sleep(time.Nanosecond)
		if f.want("2"); f.late != 1 {
			t.Errorf("%d batches are late, want one", f.late)
		}
		f.say(ann, "1")
		f.say(ann, "4")
		f.want("2", "1", "4")
		time.Sleep(2 * limit)
		if f.late != 1 {
			t.Errorf("%d batches are late, want one", f.late)
		}
	})
}

// A message that could not be stored is still missing.
func TestError(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.Await(ann, "1")
		f.say(ann, "2")
		f.err = errors.New("disk full")
		if err := f.say(ann, "1"); !errors.Is(err, f.err) {
			t.Fatalf("Publish = %v, want the error of the store", err)
		}
		f.err = nil
		f.want()
		f.say(ann, "1")
		f.want("1", "2")
	})
}

// The number of missing messages is limited, for all senders and for each.
func TestBounds(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var want []string
		for i := range 300 {
			f.Await(ann, fmt.Sprint("a", i))
		}
		for i := range 1000 {
			f.Await(inorder.Sender{Chat: fmt.Sprint(i), ID: "x"}, fmt.Sprint("x", i))
		}
		f.say(inorder.Sender{Chat: "999", ID: "x"}, "free")
		want = append(want, "free")
		for i := range 300 {
			f.say(ann, fmt.Sprint("a", i))
			want = append(want, fmt.Sprint("a", i))
		}
		f.want(want...)
	})
}

// After Stop nothing is released.
func TestStop(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.Await(ann, "1")
		f.say(ann, "2")
		f.Stop()
		time.Sleep(2 * limit)
		if f.want(); f.late != 0 {
			t.Errorf("%d batches are late, want none", f.late)
		}
	})
}
