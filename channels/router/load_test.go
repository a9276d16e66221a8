package router_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
	"gateway/store"
)

// The progress of an answer does not make the router read the outbox: each read has a cost.
func TestProgressReadsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.storeBy(bus.NewOutbox(), bus.OutboundMessage{To: chatA, Text: "hello"})
		for i := range 10 {
			w.show(thread("b", ""), "s", fmt.Sprint("news ", i))
		}
		w.wantRead(chatA)
		w.sleep(2 * time.Second)
		w.wantRead(chatA, "hello")
	})
}

// A row that can't be read is set aside. The other messages of its conversation are sent.
func TestBadRow(t *testing.T) {
	for _, running := range []bool{false, true} {
		inWorld(t, func(w *world) {
			if running {
				w.Fail(1, errDown) // so that the next messages are loaded from the table
				w.start()
				w.put(chatA, "first")
			}
			bad := w.storeBy(bus.NewOutbox(), bus.OutboundMessage{To: chatA, Text: "bad"})
			w.exec("UPDATE outbox SET body = '{' WHERE id = $1", bad)
			good := w.storeBy(bus.NewOutbox(), bus.OutboundMessage{To: chatA, Text: "good"})
			if !running {
				w.exec("INSERT INTO previews (stream, ids) VALUES ('s', '{')")
				w.start()
			}
			w.sleep(5 * time.Second)
			w.wantState(good, bus.Sent)
			var state string
			err := w.db.Read(w.t.Context()).QueryRow("SELECT state FROM outbox WHERE id = $1", bad).
				Scan(&state)
			if err != nil || state != "bad" {
				t.Errorf("the row is %q, %v, want bad", state, err)
			}
			if n := w.router.Stats().Bad.Load(); n == 0 {
				t.Error("Stats.Bad = 0")
			}
		})
	}
}

// Previews are forgotten after two days if their turn ended without an answer.
func TestOldPreviews(t *testing.T) {
	inWorld(t, func(w *world) {
		w.poll = 10 * time.Minute
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.progress(bus.Progress{To: chatA, Stream: "s", Ended: true})
		w.sleep(47 * time.Hour)
		if n := w.rows("previews"); n != 1 {
			t.Errorf("%d previews are noted, want one", n)
		}
		w.sleep(2 * time.Hour)
		if n := w.rows("previews"); n != 0 {
			t.Errorf("%d previews are noted after two days", n)
		}
	})
}

// In an outage, not every conversation tries by itself, since each attempt costs two writes. One
// conversation at a time tries, a different one each time. When an attempt succeeds, all
// conversations continue.
func TestOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		var up atomic.Bool
		w.fail = func(context.Context, call) error {
			if up.Load() {
				return nil
			}
			return errDown
		}
		var list []bus.OutboundMessage
		for i := range 200 {
			to := thread(fmt.Sprint(i%100), "")
			list = append(list, bus.OutboundMessage{To: to, Text: fmt.Sprint(i / 100)})
		}
		w.store(list...)
		w.start()
		w.sleep(2 * time.Hour)
		calls := w.asked("send")
		if n := len(calls); n < 100 || n > 320 {
			t.Errorf("%d tries in an outage of two hours, want some 100 at once and one a minute", n)
		}
		last := make(map[bus.Address]bool)
		for _, c := range calls[len(calls)-20:] {
			last[c.to] = true
		}
		if len(last) < 10 {
			t.Errorf("the last 20 tries were of %d conversations", len(last))
		}
		up.Store(true)
		w.sleep(70 * time.Second)
		for i := range 100 {
			w.wantRead(thread(fmt.Sprint(i), ""), "0", "1")
		}
	})
}

// After a long outage of a few conversations, each one has reached its own pause of five
// minutes. Still, one of them tries each minute, and all continue when that succeeds.
func TestOutageOfFew(t *testing.T) {
	inWorld(t, func(w *world) {
		var up atomic.Bool
		w.fail = func(context.Context, call) error {
			if up.Load() {
				return nil
			}
			return errDown
		}
		for i := range 5 {
			w.store(bus.OutboundMessage{To: thread(fmt.Sprint(i), ""), Text: "hello"})
		}
		w.start()
		w.sleep(2 * time.Hour)
		calls := w.asked("send")
		for i := 1; i < len(calls); i++ {
			if gap := calls[i].at - calls[i-1].at; gap > 66*time.Second {
				t.Errorf("no try for %v after %v", gap, calls[i-1].at)
			}
		}
		up.Store(true)
		w.sleep(66 * time.Second)
		for i := range 5 {
			w.wantRead(thread(fmt.Sprint(i), ""), "hello")
		}
		calls = w.asked("send")[len(calls):]
		if wait := calls[len(calls)-1].at - calls[0].at; wait > time.Second {
			t.Errorf("after the first success, a conversation waited for another %v", wait)
		}
	})
}

// If some conversations fail while others don't, it is not an outage.
func TestNoOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if strings.HasPrefix(c.text, "bad") {
				return errDown
			}
			return nil
		}
		w.start()
		for i := range 4 {
			w.put(thread(fmt.Sprint(i), ""), "bad")
		}
		for i := range 20 {
			w.put(thread(fmt.Sprint("good ", i), ""), "hello")
			w.wantRead(thread(fmt.Sprint("good ", i), ""), "hello")
			w.sleep(time.Minute)
		}
	})
}

// A message that crashes the process while it is split or sent is given up at the third attempt.
// Another message that was being sent at each crash is not given up.
func TestPoison(t *testing.T) {
	for _, where := range []string{"split", "send"} {
		t.Run(where, func(t *testing.T) {
			inWorld(t, func(w *world) {
				other := thread("b", "")
				var dir string
				poison := w.store(bus.OutboundMessage{To: chatA,
					Text: "poison, which is so long that it is measured"})
				innocent := w.store(bus.OutboundMessage{To: other, Text: "innocent"})
				die := func() {
					time.Sleep(500 * time.Millisecond) // meanwhile the other message is being sent
					if w.delivery(poison).State != bus.Sending {
						t.Error("what may end the process is not noted before it is tried")
					}
					dir = w.t.TempDir()
					copyFiles(w.t, w.dir, dir)
					panic("killed")
				}
				w.SetLimits(channels.Limits{Text: 100, Measure: func(s string) int {
					if where == "split" && strings.HasPrefix(s, "poison") {
						die()
					}
					return len(s)
				}})
				for life := range 5 {
					dir = ""
					w.fail = func(_ context.Context, c call) error {
						if where == "send" && strings.HasPrefix(c.text, "poison") {
							die()
						}
						time.Sleep(time.Second)
						return nil
					}
					stop := w.start()
					w.sleep(5 * time.Second)
					stop()
					if died := dir != ""; died != (life < 3) {
						t.Fatalf("life %d: it died: %v", life, died)
					}
					if dir != "" {
						w.dir, w.db = dir, openStore(w.t, dir)
						w.outbox = bus.NewOutbox()
					}
				}
				w.wantState(poison, bus.Dead)
				w.wantState(innocent, bus.Sent)
				if d := w.delivery(poison); !strings.Contains(d.Error, "three times") {
					t.Errorf("the dead letter says %q", d.Error)
				}
				// A person may retry it. Then its count of crashes begins at zero.
				err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
					_, err := w.outbox.Retry(tx, poison, time.Now())
					return err
				})
				if d := w.delivery(poison); err != nil || d.Crashes != 0 {
					t.Errorf("after a retry it is %+v, %v", d, err)
				}
			})
		})
	}
}

// At the start, all other messages wait for a message that has crashed two processes, but not
// for long.
func TestSuspectFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		suspect := w.store(bus.OutboundMessage{To: chatA, Text: "suspect"})
		w.exec("UPDATE outbox SET state = 'sending', crashes = 1")
		w.store(bus.OutboundMessage{To: thread("b", ""), Text: "other"})
		w.fail = func(_ context.Context, c call) error {
			if c.to == chatA {
				time.Sleep(3 * time.Second)
			}
			return nil
		}
		w.start()
		w.sleep(4 * time.Second)
		w.wantCalls([]string{"send"}, `send "suspect" at 0s`, `send "other" at 3s`)
		if d := w.delivery(suspect); d.State != bus.Sent || d.Crashes != 0 {
			t.Errorf("the suspect is %s with %d crashes", d.State, d.Crashes)
		}
		synctest.Wait()
	})
}

// A counting is a platform that counts how often a router asks for its limits: before each attempt
// at a message, and each time that a message has to wait.
type counting struct {
	*platform
	asked *atomic.Int64
}

func (c counting) Limits(to bus.Address) channels.Limits {
	if c.asked.Add(1) > 1000 {
		time.Sleep(time.Second) // ends a loop that takes no time
	}
	return c.platform.Limits(to)
}

// While a message that has crashed two processes waits for a rate limit, its worker sleeps. The
// platform sets the limit when it gets another such message.
func TestSuspectSleeps(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store(bus.OutboundMessage{To: chatA, Text: "one"},
			bus.OutboundMessage{To: thread("b", ""), Text: "two"})
		w.exec("UPDATE outbox SET state = 'sending', crashes = 1")
		w.fail = func(context.Context, call) error {
			if len(w.asked("send")) == 1 {
				return &channels.RateError{After: time.Minute, Account: true}
			}
			return nil
		}
		p := counting{w.platform, new(atomic.Int64)}
		w.start(func(a *router.Account) { a.Channel = p })
		w.sleep(2 * time.Minute)
		w.wantRead(chatA, "one")
		w.wantRead(thread("b", ""), "two")
		if n := p.asked.Load(); n > 100 {
			t.Errorf("the worker has looked at the message %d times, want few", n)
		}
	})
}

// If the last process ended in order, nobody waits for a message that was being sent when one
// earlier process crashed.
func TestOneCrashIsNoSuspect(t *testing.T) {
	inWorld(t, func(w *world) {
		other := thread("b", "")
		w.store(bus.OutboundMessage{To: chatA, Text: "hello"})
		w.exec("UPDATE outbox SET state = 'sending', crashes = 1")
		w.store(bus.OutboundMessage{To: other, Text: "other"})
		w.orderly = true
		w.start()
		w.wantRead(chatA, "hello")
		w.wantRead(other, "other")
	})
}

// Nobody waits for a message that has crashed two processes if its account was removed since.
func TestSuspectOfRemovedAccount(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store(bus.OutboundMessage{To: bus.Address{Account: "away", Chat: "a"}, Text: "suspect"})
		w.exec("UPDATE outbox SET state = 'sending', crashes = 1")
		w.store(bus.OutboundMessage{To: chatA, Text: "other"})
		w.start()
		w.wantRead(chatA, "other")
	})
}

// A message that was being sent when a process ended in order is sent: it crashed nothing. After
// a crash instead, it is given up.
func TestOrderlyEnd(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		t.Run(fmt.Sprint("orderly ", orderly), func(t *testing.T) {
			inWorld(t, func(w *world) {
				id := w.store(bus.OutboundMessage{To: chatA, Text: "hello"})
				w.exec("UPDATE outbox SET state = 'sending', crashes = 2")
				w.orderly = orderly
				w.start()
				w.sleep(time.Minute)
				want := map[bool]bus.DeliveryState{true: bus.Sent, false: bus.Dead}
				w.wantState(id, want[orderly])
			})
		})
	}
}
