package router_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
	"gateway/store"
)

// down makes each call for chatA fail with err.
func down(err error) func(context.Context, call) error {
	return func(_ context.Context, c call) error {
		if c.to == chatA {
			return err
		}
		return nil
	}
}

// A message must not be given up after 3.5 s. After an error that is not a rate limit, the wait
// doubles from 1 s to 5 min.
func TestBackoff(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = down(errDown)
		w.start()
		w.put(chatA, "hello")
		w.sleep(time.Hour)
		calls := w.asked("send")
		want := time.Second
		for i := 1; i < len(calls); i++ {
			gap := calls[i].at - calls[i-1].at
			if gap < want*3/4 || gap > want*5/4 {
				t.Errorf("try %d came after %v, want %v ± a quarter", i+1, gap, want)
			}
			if calls[i].id != calls[0].id {
				t.Errorf("try %d has key %q, want %q", i+1, calls[i].id, calls[0].id)
			}
			want = min(2*want, 5*time.Minute)
		}
		if len(calls) < 15 {
			t.Errorf("%d tries in an hour, want some 19", len(calls))
		}
	})
}

// The wait begins at 1 s again for each message and for each part.
func TestBackoffBeginsAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.fail = func(_ context.Context, c call) error {
			if len(w.asked("send"))%4 != 0 { // each part fails three times
				return errDown
			}
			return nil
		}
		w.start()
		id := w.put(chatA, "the first\n\nsecond")
		w.put(chatA, "next")
		w.sleep(3 * 9 * time.Second) // three times 1 + 2 + 4 s, plus a quarter
		w.wantRead(chatA, "the first", "second", "next")
		if d := w.delivery(id); d.Attempts != 0 || d.Error != "" {
			t.Errorf("delivered with %d attempts and error %q", d.Attempts, d.Error)
		}
	})
}

// A message is tried for a day, and then becomes a dead letter.
func TestGivenUpAfterADay(t *testing.T) {
	for name, err := range map[string]error{
		"outage": errDown, "rate limit": &channels.RateError{After: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fail = down(err)
				id := w.store(bus.OutboundMessage{To: chatA, Text: "hello"})
				w.exec("UPDATE outbox SET tried_ms = $1",
					(24*time.Hour - 10*time.Minute).Milliseconds())
				w.start()
				next := w.put(chatA, "next")
				w.sleep(9 * time.Minute)
				w.wantState(id, bus.Waiting)
				w.sleep(7 * time.Minute)
				w.wantState(id, bus.Dead)
				w.wantState(next, bus.Waiting)
				if n := w.router.Stats().Dead.Load(); n != 1 {
					t.Errorf("Stats.Dead = %d, want 1", n)
				}
				if d := w.delivery(id); d.Error != err.Error() {
					t.Errorf("the dead letter says %q, want %q", d.Error, err)
				}
			})
		})
	}
}

// Time in which nobody tried does not count. For example, the laptop was closed over the
// weekend, or a backup was restored. Then the first failure does not make all messages dead
// letters.
func TestNotGivenUpAfterStandstill(t *testing.T) {
	for name, err := range map[string]error{
		"outage": errDown, "rate limit": &channels.RateError{After: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Fail(3, err)
				id := w.store(bus.OutboundMessage{To: chatA, Text: "hello"})
				w.exec("UPDATE outbox SET created_ms = $1",
					time.Now().Add(-72*time.Hour).UnixMilli())
				w.start()
				w.sleep(10 * time.Minute)
				w.wantState(id, bus.Sent)
			})
		})
	}
}

// One long wait that the platform asked for does not count as a day of trying.
func TestNotGivenUpAfterOneLongLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.poll = 10 * time.Minute
		w.Fail(2, &channels.RateError{After: 30 * time.Hour})
		w.start()
		id := w.put(chatA, "hello")
		w.sleep(61 * time.Hour)
		w.wantState(id, bus.Sent)
	})
}

// A message is given up while the platform's rate limit applies. The next message still waits
// for the end of the limit.
func TestGivenUpButLimited(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = down(&channels.RateError{After: 7 * time.Minute})
		w.store(bus.OutboundMessage{To: chatA, Text: "hello"})
		w.exec("UPDATE outbox SET tried_ms = $1", (25 * time.Hour).Milliseconds())
		w.start()
		w.put(chatA, "next")
		w.sleep(7 * time.Minute)
		w.wantCalls([]string{"send"}, `send "hello" at 0s`, `send "next" at 7m0s`)
	})
}

// A secret that was added after a message was split, in this process or an earlier one, is not
// sent.
func TestRetryWithNewSecret(t *testing.T) {
	const withheld = "[I have withheld this message: it contained a secret of the gateway.]"
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.SetLimits(channels.Limits{Text: 12, Measure: small.Measure, EditInterval: time.Second})
			down := true
			w.fail = func(_ context.Context, c call) error {
				if down && c.text == "sesame-open" {
					return errDown
				}
				return nil
			}
			stop := w.start()
			w.put(chatA, "the first\n\nsesame-open\n\nthe third")
			w.secrets = router.Secrets{"sesame-open"}
			down = false
			if restart {
				stop()
				w.start()
			} else {
				w.router.SetSecrets(w.secrets)
			}
			w.sleep(time.Minute)
			w.wantRead(chatA, "the first", withheld, "the third")
		})
	}
}

func TestRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Fail(1, fmt.Errorf("chat not found: %w", channels.ErrRefused))
		w.start()
		id := w.put(chatA, "refused")
		w.put(chatA, "next")
		w.wantRead(chatA, "next")
		w.wantState(id, bus.Dead)
		w.sleep(time.Hour)
		w.wantCalls([]string{"send"}, `send "refused" at 0s`, `send "next" at 0s`)
		if n := w.router.Stats().Dead.Load(); n != 1 {
			t.Errorf("Stats.Dead = %d, want 1", n)
		}
	})
}

// If a send times out, the platform may have accepted it. So each retry uses the same key.
func TestUncertain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Lose(2)
		w.start()
		id := w.put(chatA, "hello")
		w.sleep(time.Minute)
		calls := w.asked("send")
		if len(calls) != 3 || calls[0].id != calls[1].id || calls[1].id != calls[2].id {
			t.Errorf("calls %v, want three with one key", calls)
		}
		d := w.delivery(id)
		if n := w.router.Stats().Uncertain.Load(); n != 2 || d.Uncertain != 2 {
			t.Errorf("%d counted, %d noted as uncertain, want 2", n, d.Uncertain)
		}
		w.wantState(id, bus.Sent)
	})
}

// The router waits exactly as long as retry_after says. The wait applies to the chat with all
// its topics.
func TestRateLimitOfChat(t *testing.T) {
	inWorld(t, func(w *world) {
		limited := true
		w.fail = func(_ context.Context, c call) error {
			if limited && c.to.Chat == "a" {
				limited = false
				return &channels.RateError{After: 7 * time.Minute}
			}
			return nil
		}
		w.start()
		id := w.put(thread("a", "1"), "topic 1")
		w.put(thread("a", "2"), "topic 2")
		w.put(thread("b", ""), "other chat")
		w.sleep(7 * time.Minute)
		w.wantCallsAtOnce([]string{"send"}, `send "topic 1" at 0s`, `send "other chat" at 0s`,
			`send "topic 1" at 7m0s`, `send "topic 2" at 7m0s`)
		if d := w.delivery(id); d.Attempts != 0 {
			t.Errorf("the limit counts as %d failed attempts", d.Attempts)
		}
	})
}

func TestRateLimitOfAccount(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Fail(1, &channels.RateError{After: 7 * time.Minute, Account: true})
		second := bus.Address{Account: "second", Chat: "a"}
		w.startWith(router.Account{Name: "full", Channel: w.platform},
			router.Account{Name: "second", Channel: w.platform})
		w.put(chatA, "chat a")
		w.put(thread("b", ""), "chat b")
		w.put(second, "other account")
		w.progress(bus.Progress{To: thread("c", ""), Stream: "s", Text: "hel"})
		w.sleep(7*time.Minute - 1)
		w.wantCallsAtOnce([]string{"send", "type"}, `send "chat a" at 0s`,
			`send "other account" at 0s`)
		w.sleep(1)
		w.wantCallsAtOnce([]string{"send"}, `send "chat a" at 0s`, `send "other account" at 0s`,
			`send "chat a" at 7m0s`, `send "chat b" at 7m0s`)
	})
}

// A rate limit of zero is treated like any other failure. The router does not try again without
// a pause.
func TestRateLimitOfNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = down(&channels.RateError{})
		w.start()
		w.put(chatA, "hello")
		w.sleep(10 * time.Second)
		if n := len(w.asked("send")); n > 5 {
			t.Errorf("%d tries in 10 s", n)
		}
	})
}

// person changes the outbox as another process does, which can't wake the router.
func (w *world) person(change func(*store.Tx, int64, time.Time) (int64, error), id int64) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
		n, err := change(tx, id, time.Now())
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows changed, want 1", n)
		}
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
	w.sleep(2 * time.Second)
}

// A retry by a person also resets the age of the message. Otherwise the next failure would end
// it at once.
func TestRetryByPerson(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Fail(2, channels.ErrRefused)
		w.start()
		id := w.put(chatA, "hello")
		w.exec("UPDATE outbox SET tried_ms = tried_ms + $1", (25 * time.Hour).Milliseconds())
		w.person(w.outbox.Retry, id)
		w.wantState(id, bus.Dead) // it was refused again
		w.Fail(1, errDown)
		w.exec("UPDATE outbox SET tried_ms = tried_ms + $1", (25 * time.Hour).Milliseconds())
		w.person(w.outbox.Retry, id)
		w.sleep(2 * time.Second)
		w.wantState(id, bus.Sent)
		w.wantRead(chatA, "hello")
	})
}

// Many messages that are retried at once keep their order.
func TestRetryAllByPerson(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = bus.ReadLimit + 10
		var want []string
		var messages []bus.OutboundMessage
		for i := range n {
			want = append(want, fmt.Sprint(i))
			messages = append(messages, bus.OutboundMessage{To: chatA, Text: want[i]})
		}
		w.Fail(n, channels.ErrRefused)
		w.store(messages...)
		w.start()
		w.put(chatA, "meanwhile")
		err := w.db.Tx(w.t.Context(), func(tx *store.Tx) error {
			_, err := w.outbox.Retry(tx, 0, time.Now())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(2 * time.Second)
		w.wantRead(chatA, append([]string{"meanwhile"}, want...)...)
	})
}

// The time in which a message waits behind another one does not count as tried.
func TestWaitingIsNotTrying(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = down(errDown)
		w.start()
		w.sleep(time.Second)
		id := w.put(chatA, "bad")
		next := w.put(chatA, "next")
		w.sleep(time.Hour)
		w.person(w.outbox.Drop, id)
		if d := w.delivery(next); d.Attempts == 0 || d.Tried > 2*time.Second {
			t.Errorf("after %d attempts, it counts as tried for %v", d.Attempts, d.Tried)
		}
	})
}

// A message whose place a retried one has taken keeps its pause, unless the clock was set back.
func TestPauseAfterClockChange(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour} {
		inWorld(t, func(w *world) {
			w.Fail(1, channels.ErrRefused)
			w.start()
			earlier := w.put(chatA, "earlier")
			w.Fail(9, errDown)
			id := w.put(chatA, "hello")
			w.sleep(6 * time.Minute) // the ninth pause is at least 3 minutes long
			d := w.delivery(id)
			w.exec("UPDATE outbox SET updated_ms = $1 WHERE id = $2",
				d.Changed.Add(ahead).UnixMilli(), id)
			w.person(w.outbox.Retry, earlier)
			if ahead == 0 {
				w.wantRead(chatA, "earlier")
			}
			w.sleep(10 * time.Minute)
			w.wantRead(chatA, "earlier", "hello")
		})
	}
}

// If a message that waits for its next attempt is dropped, the message after it no longer waits.
func TestDropByPerson(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.text == "bad" {
				return errDown
			}
			return nil
		}
		w.start()
		id := w.put(chatA, "bad")
		second := w.put(chatA, "second")
		w.put(chatA, "third")
		w.sleep(time.Hour) // the next attempt is up to five minutes away
		tries := len(w.asked("send"))
		w.person(w.outbox.Drop, second)
		w.person(w.outbox.Drop, id)
		w.wantRead(chatA, "third")
		w.sleep(time.Hour)
		w.wantRead(chatA, "third")
		w.wantState(id, bus.Dropped)
		w.wantState(second, bus.Dropped)
		if n := len(w.asked("send")); n > tries+2 {
			t.Errorf("%d tries after the drop", n-tries-1)
		}
		if n := w.router.Pending("full"); n != 0 {
			t.Errorf("Open = %d, want 0", n)
		}
	})
}

// A drop comes too late for the part that is being sent, but prevents the next part.
func TestDropWhileSending(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.fail = func(context.Context, call) error { time.Sleep(10 * time.Second); return nil }
		w.start()
		id := w.put(chatA, "the first\n\nsecond")
		w.put(chatA, "next")
		w.person(w.outbox.Drop, id)
		w.sleep(20 * time.Second)
		w.wantRead(chatA, "the first", "next")
		w.wantState(id, bus.Dropped)
	})
}

// A rate limit still applies if its message is dropped.
func TestDropWhileLimited(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Fail(1, &channels.RateError{After: time.Minute})
		w.start()
		id := w.put(chatA, "dropped")
		w.put(chatA, "next")
		w.person(w.outbox.Drop, id)
		w.sleep(58 * time.Second)
		w.wantCalls([]string{"send"}, `send "dropped" at 0s`, `send "next" at 1m0s`)
	})
}

// A message that is given up and retried again and again doesn't delay others.
func TestRetryIsNotLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.text == "bad" {
				return channels.ErrRefused
			}
			return nil
		}
		w.start()
		id := w.put(chatA, "bad")
		for range 5 {
			w.person(w.outbox.Retry, id)
		}
		w.put(chatA, "good")
		w.wantRead(chatA, "good")
		if n := len(w.asked("send")); n != 7 {
			t.Errorf("%d calls, want 7", n)
		}
	})
}

// times returns the time of each send, in milliseconds.
func (w *world) times() (ms []int64) {
	for _, c := range w.asked("send") {
		ms = append(ms, c.at.Milliseconds())
	}
	return ms
}

func wantTimes(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("sent at %v ms, want %v", got, want)
		return
	}
	for i := range got {
		if d := got[i] - want[i]; d < 0 || d > 1 {
			t.Errorf("sent at %v ms, want %v", got, want)
			return
		}
	}
}

func TestRateOfChat(t *testing.T) {
	inWorld(t, func(w *world) {
		l := small
		l.Chat = channels.Rate{Every: time.Second, Burst: 2}
		w.SetLimits(l)
		w.start()
		for i := range 3 { // the topics of a chat share its rate
			w.put(thread("a", "1"), fmt.Sprint(i))
			w.put(thread("a", "2"), fmt.Sprint(i))
		}
		w.put(thread("b", ""), "other chat")
		w.sleep(5 * time.Second)
		wantTimes(t, w.times(), 0, 0, 0, 1000, 2000, 3000, 4000)
	})
}

// All chats of an account share its rate, and wait in line.
func TestRateOfAccount(t *testing.T) {
	inWorld(t, func(w *world) {
		l := small
		l.Account = channels.Rate{Every: time.Second, Burst: 3}
		w.SetLimits(l)
		w.start()
		for i := range 6 {
			w.put(thread(fmt.Sprint(i), ""), fmt.Sprint(i))
		}
		w.sleep(5 * time.Second)
		wantTimes(t, w.times(), 0, 0, 0, 1000, 2000, 3000)
		for i, c := range w.asked("send") {
			if c.text != fmt.Sprint(i) {
				t.Errorf("message %d was %q: the line is not kept", i, c.text)
			}
		}
	})
}

// Chats that wait in line when the account is paused are not served all at once after the pause.
func TestRateAfterPause(t *testing.T) {
	inWorld(t, func(w *world) {
		l := small
		l.Account = channels.Rate{Every: time.Second, Burst: 1}
		w.SetLimits(l)
		limited := false
		w.fail = func(_ context.Context, c call) error {
			if !limited {
				limited = true
				return &channels.RateError{After: time.Minute, Account: true}
			}
			return nil
		}
		w.start()
		for i := range 4 {
			w.store(bus.OutboundMessage{To: thread(fmt.Sprint(i), ""), Text: "hello"})
		}
		w.sleep(2 * time.Minute)
		wantTimes(t, w.times(), 0, 60_000, 61_000, 62_000, 63_000)
	})
}

func TestUnlimited(t *testing.T) {
	inWorld(t, func(w *world) {
		l := small
		l.Chat = channels.Rate{Every: time.Second, Burst: 1}
		l.Account = l.Chat
		w.SetLimits(l)
		w.start(func(a *router.Account) { a.Unlimited = true })
		for range 5 {
			w.put(chatA, "hello")
		}
		wantTimes(t, w.times(), 0, 0, 0, 0, 0)
		w.Fail(1, &channels.RateError{After: time.Minute}) // it counts even so
		w.put(chatA, "hello")
		w.sleep(time.Minute)
		wantTimes(t, w.times(), 0, 0, 0, 0, 0, 0, 60_000)
	})
}

// A channel that is not a Limiter has no limits.
func TestNoLimits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startWith(router.Account{Name: "full", Channel: &w.Memory, Streaming: true})
		w.show(chatA, "s", "hel")
		w.answer(chatA, "hello", "s")
		w.wantRead(chatA, "hello")
	})
}

func TestErrorsSayWhat(t *testing.T) {
	limit := error(&channels.RateError{After: 7 * time.Second})
	if got := limit.Error(); got != "rate limited for 7s" {
		t.Errorf("RateError is %q", got)
	}
	refused := error(&channels.AccountError{Reason: "no such bot"})
	if got := refused.Error(); got != "no such bot" {
		t.Errorf("AccountError is %q", got)
	}
	if errors.Is(channels.ErrUncertain, channels.ErrRefused) {
		t.Error("ErrUncertain is ErrRefused")
	}
}
