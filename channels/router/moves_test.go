package router_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
)

// Two ids of one group.
var earlier, present = thread("old", ""), thread("new", "")

// moves is true when the group has moved.
type moves struct{ atomic.Bool }

func (m *moves) OtherID(a bus.Address) string {
	switch {
	case !m.Load():
	case a.Chat == earlier.Chat:
		return present.Chat
	case a.Chat == present.Chat:
		return earlier.Chat
	}
	return ""
}

// inMovedGroup is like inWorld, with a group that has moved. While down is true, all calls for the
// conversation first fail.
func inMovedGroup(
	t *testing.T, first bus.Address, test func(w *world, moved *moves, down *atomic.Bool),
) {
	t.Helper()
	inWorld(t, func(w *world) {
		moved, down := new(moves), new(atomic.Bool)
		moved.Store(true)
		down.Store(true)
		w.moves = moved
		w.fail = func(_ context.Context, c call) error {
			switch {
			case c.to == first && down.Load():
				return errDown
			case !moved.Load(): // otherwise the router could send what it does not know to be later
				return &channels.RateError{After: 3 * time.Second}
			}
			return nil
		}
		test(w, moved, down)
	})
}

// wantOrder checks the order in which people read the messages of all conversations.
func (w *world) wantOrder(want ...string) {
	w.t.Helper()
	var got []string
	for _, s := range w.Sent() {
		got = append(got, s.Part.Text)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("after %v people read %q, want %q", time.Since(w.began), got, want)
	}
}

// The messages to both ids of a group that has moved are sent in their order, no matter which
// conversation is in trouble, and when the router learns of the move.
func TestOrderInMovedGroup(t *testing.T) {
	const before, running, later = "before the start", "before the messages", "after the messages"
	for _, known := range []string{before, running, later} {
		for _, to := range [][2]bus.Address{{earlier, present}, {present, earlier}} {
			t.Run(known+", first to the "+to[0].Chat, func(t *testing.T) {
				inMovedGroup(t, to[0], func(w *world, moved *moves, down *atomic.Bool) {
					moved.Store(known != later)
					if known != before {
						w.start()
					}
					for i, text := range []string{"1", "2", "3", "4", "5"} {
						w.store(bus.OutboundMessage{To: to[[]int{0, 1, 1, 0, 1}[i]], Text: text})
					}
					if known == before {
						w.start()
					}
					w.sleep(2 * time.Second)
					moved.Store(true)
					w.sleep(20 * time.Second)
					w.wantOrder()
					down.Store(false)
					w.sleep(20 * time.Second)
					w.wantOrder("1", "2", "3", "4", "5")
				})
			})
		}
	}
}

// A message that waits for one to the other id is sent as soon as that one is sent or given up.
func TestNextInMovedGroup(t *testing.T) {
	for _, refused := range []bool{false, true} {
		inMovedGroup(t, earlier, func(w *world, _ *moves, down *atomic.Bool) {
			w.start()
			w.put(earlier, "first")
			if w.put(present, "second"); refused {
				w.Fail(1, channels.ErrRefused)
			}
			down.Store(false)
			w.sleep(2 * time.Second)
			w.wantRead(present, "second")
		})
	}
}

// An answer does not grow above a message to the other id that is not sent yet. Then it grows.
func TestPreviewInMovedGroup(t *testing.T) {
	inMovedGroup(t, earlier, func(w *world, _ *moves, down *atomic.Bool) {
		w.start()
		w.put(earlier, "first")
		w.show(present, "s", "sec")
		w.sleep(5 * time.Second)
		w.wantOrder()
		down.Store(false)
		w.sleep(5 * time.Second)
		w.answer(present, "second", "s")
		w.wantOrder("first", "second")
		if n := len(w.asked("edit")); n != 1 {
			t.Errorf("%d edits, want one", n)
		}
	})
}

// The topics of a group that has moved don't wait for the messages to the earlier id.
func TestTopicOfMovedGroup(t *testing.T) {
	inMovedGroup(t, earlier, func(w *world, _ *moves, _ *atomic.Bool) {
		w.start()
		w.put(earlier, "first")
		w.put(thread(present.Chat, "topic"), "another")
		w.wantOrder("another")
	})
}

// A message that must wait for one to the other id is not stored as being sent. After a kill -9 it
// would count as sent twice.
func TestIdleInMovedGroup(t *testing.T) {
	inMovedGroup(t, earlier, func(w *world, _ *moves, down *atomic.Bool) {
		w.start()
		idle := *w.outbox.Idle.Load()
		id := w.put(earlier, "first")
		if idle(present) {
			t.Error("a message to the present id would be stored as being sent")
		}
		down.Store(false)
		w.sleep(5 * time.Second)
		w.wantState(id, bus.Sent)
		if !idle(present) || idle(earlier) {
			t.Error("of two messages to both ids, the first one would not be stored as being sent, " +
				"or the second one would")
		}
	})
}

// Both ids of a group share the limits of the group.
func TestRateOfMovedGroup(t *testing.T) {
	inMovedGroup(t, bus.Address{}, func(w *world, _ *moves, _ *atomic.Bool) {
		l := small
		l.Chat = channels.Rate{Every: time.Second, Burst: 1}
		w.SetLimits(l)
		w.start()
		for range 2 {
			w.put(earlier, "one")
			w.put(present, "two")
		}
		w.sleep(5 * time.Second)
		wantTimes(t, w.times(), 0, 1000, 2000, 3000)
	})
}

// A person can put an earlier message to either id back, while messages to both ids wait. Then all
// are sent, instead of each conversation waiting for the other.
func TestRetryInMovedGroup(t *testing.T) {
	for _, to := range [][2]bus.Address{{earlier, present}, {present, earlier}} {
		inMovedGroup(t, to[0], func(w *world, _ *moves, down *atomic.Bool) {
			w.start()
			w.Fail(1, channels.ErrRefused)
			dead := w.put(to[1], "1")
			w.sleep(time.Second)
			w.wantState(dead, bus.Dead)
			w.put(to[0], "2")
			w.put(to[1], "3")
			w.sleep(5 * time.Second)
			w.person(w.outbox.Retry, dead)
			w.sleep(5 * time.Second)
			down.Store(false)
			w.sleep(time.Minute)
			w.wantOrder("1", "2", "3")
		})
	}
}

// The answer to a message from before a group moved can also answer one from after that, such as
// the reply to a question. That one loses its reaction, too, also if an earlier process set it.
func TestMarksInMovedGroup(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		inMovedGroup(t, bus.Address{}, func(w *world, _ *moves, _ *atomic.Bool) {
			s := &reactingPlatform{platform: w.platform}
			w.startWith(router.Account{Name: "full", Channel: s, Reaction: "👀"})
			if !restarted {
				w.sleep(time.Hour)
				w.router.Admitted([]bus.InboundMessage{{ID: "1", From: earlier}, {ID: "2", From: present},
					{ID: "3", From: earlier}, {ID: "3", From: present}})
				w.sleep(time.Second)
			}
			w.store(bus.OutboundMessage{To: earlier, Text: "hello", Answers: []string{"1", "2", "3"}})
			w.sleep(time.Second)
			left := make(map[string]string)
			for _, c := range s.asked("react") {
				left[c.to.Chat+" "+c.id] = c.text
			}
			want := map[string]string{"old 1": "", "new 2": "", "old 3": "", "new 3": "👀"}
			for key, emoji := range want {
				if got, ok := left[key]; !restarted && got != emoji || restarted && (got != "" || !ok) {
					t.Errorf("message %s has %q (%v), want %q", key, got, ok, emoji)
				}
			}
		})
	}
}
