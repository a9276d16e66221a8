package router_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/markup"
	"gateway/channels/router"
)

var shows = []string{"send", "edit", "remove"} // the calls that people see

// ended publishes that a stream has ended.
func (w *world) ended(to bus.Address, stream string, void bool) {
	w.progress(bus.Progress{To: to, Stream: stream, Ended: true, Void: void})
}

// A preview begins after one second, or after the edit interval if that is shorter. An answer
// that is complete before that gets no preview.
func TestPreviewBegins(t *testing.T) {
	for _, tt := range []struct {
		interval time.Duration
		want     string
	}{
		{3 * time.Second, `send "two" at 1s`},
		{40 * time.Millisecond, `send "one" at 40ms`},
	} {
		inWorld(t, func(w *world) {
			w.start(func(a *router.Account) { a.EditInterval = tt.interval })
			w.show(chatA, "s", "one")
			w.sleep(40 * time.Millisecond)
			w.show(chatA, "s", "two")
			w.sleep(960 * time.Millisecond)
			if got := w.said("send"); len(got) != 1 || got[0] != tt.want {
				t.Errorf("interval %v: shown %q, want %s", tt.interval, got, tt.want)
			}
			quick := thread("quick", "")
			w.show(quick, "q", "hel")
			w.sleep(39 * time.Millisecond)
			w.answer(quick, "hello", "q")
			w.ended(quick, "q", false)
			w.sleep(10 * time.Minute)
			w.wantRead(quick, "hello")
		})
	}
}

// A conversation has at most one edit per interval, and the last text is the answer's.
func TestPreviewInterval(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(channels.Limits{Text: 50, Measure: small.Measure, EditInterval: time.Second})
		w.start()
		var text string
		for i := range 50 { // more than fits into one message
			text += fmt.Sprintf("%02d ", i)
			w.show(chatA, "s", text)
			w.sleep(100 * time.Millisecond)
		}
		calls := w.asked(shows...)
		for i := 1; i < len(calls); i++ {
			if gap := calls[i].at - calls[i-1].at; gap < time.Second {
				t.Errorf("two edits within %v", gap)
			}
		}
		if len(calls) < 5 {
			t.Errorf("%d calls in 5 s", len(calls))
		}
		w.answer(chatA, text, "s")
		if got := strings.Join(w.read(chatA), " "); got != strings.TrimSpace(text) {
			t.Errorf("people read %q, want %q", got, text)
		}
		if n := len(w.Sent()); n != 4 {
			t.Errorf("%d messages, want 4", n)
		}
	})
}

// All text stays visible when a preview is cut into messages. When a message outgrows the limit,
// the text after the last good place to cut is removed from it only once the next message shows
// that text.
func TestPreviewLosesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(channels.Limits{Text: 60, Measure: small.Measure, EditInterval: time.Second})
		w.start()
		var text string
		shown := make(map[string]bool)
		for i := range 70 {
			if text += fmt.Sprintf("w%02d ", i); i%9 == 8 {
				text = strings.TrimSpace(text) + "\n\n"
			}
			w.show(chatA, "s", text)
			w.sleep(300 * time.Millisecond)
			now := strings.Fields(strings.Join(w.read(chatA), " "))
			for word := range shown {
				if !slices.Contains(now, word) {
					t.Fatalf("after %d words %s is shown no more: %q", i, word, w.read(chatA))
				}
			}
			for _, word := range now {
				shown[word] = true
			}
		}
		w.answer(chatA, text, "s")
		if got, want := strings.Fields(strings.Join(w.read(chatA), " ")),
			strings.Fields(text); !slices.Equal(got, want) {
			t.Errorf("people read %q, want %q", got, want)
		}
	})
}

// An edit that would change nothing is not sent: a platform would refuse it as "not modified".
func TestPreviewThatShowsTheSame(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(channels.Limits{Text: 50, Measure: small.Measure, EditInterval: time.Second,
			Render: markup.Telegram})
		w.start()
		for _, text := range []string{"Hello", "Hello\n", "Hello\n\n"} {
			w.show(chatA, "s", text)
			w.sleep(3 * time.Second)
		}
		if calls := w.asked("edit"); len(calls) > 0 {
			t.Errorf("edits that change nothing: %v", calls)
		}
		w.show(chatA, "s", "Hello\n\nyou")
		w.sleep(3 * time.Second)
		if calls := w.asked("edit"); len(calls) != 1 {
			t.Errorf("edits %v, want one", calls)
		}
		w.answer(chatA, "Hello\n\nyou there", "s")
		w.wantRead(chatA, "Hello\n\nyou there")
	})
}

// A preview that outgrows the limit continues in a new message. The answer replaces the text of
// all these messages, and continues in further ones.
func TestPreviewOfSeveralMessages(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", ReplyTo: "7", Text: "the first\n\nseco"})
		w.sleep(2 * time.Second)
		w.wantRead(chatA, "the first", "seco")
		w.answer(chatA, "the first\n\nsecond\n\nand a\nthird", "s")
		w.wantRead(chatA, "the first", "second", "and a", "third")
		w.wantCalls(shows, `send "the first" at 1s`, `send "seco" at 2s`,
			`edit "second" at 2s`, `send "and a" at 2s`, `send "third" at 2s`)
		for i, s := range w.Sent() {
			if want := map[int]string{0: "7"}[i]; s.Part.ReplyTo != want {
				t.Errorf("message %d quotes %q, want %q", i, s.Part.ReplyTo, want)
			}
		}
	})
}

// Each message of a preview counts for the rate like any other.
func TestPreviewKeepsRate(t *testing.T) {
	inWorld(t, func(w *world) {
		l := small
		l.Chat = channels.Rate{Every: time.Minute, Burst: 2}
		w.SetLimits(l)
		w.start()
		w.put(chatA, "before")
		w.show(chatA, "s", "the first\n\nsecond")
		w.sleep(time.Minute)
		w.answer(chatA, "the first\n\nsecond.", "s")
		w.wantCalls(shows, `send "before" at 0s`, `send "the first" at 1s`,
			`send "second" at 1m0s`, `edit "second." at 1m0s`)
	})
}

// If the preview already shows the whole answer, nothing is written again.
func TestPreviewSaysItAll(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		for range 5 {
			w.show(chatA, "s", "hello")
			w.sleep(2 * time.Second)
		}
		id := w.answer(chatA, "hello", "s")
		w.wantCalls(shows, `send "hello" at 1s`)
		w.wantState(id, bus.Sent)
		if n := w.rows("previews"); n != 0 {
			t.Errorf("%d previews are noted after the end", n)
		}
	})
}

// The final text arrives exactly once, even if every preview failed.
func TestPreviewFails(t *testing.T) {
	for name, err := range map[string]error{
		"rate limit": &channels.RateError{After: time.Minute}, "refused": channels.ErrRefused,
		"network": errDown, "uncertain": channels.ErrUncertain,
	} {
		for _, first := range []string{"send", "edit"} {
			t.Run(name+" of "+first, func(t *testing.T) {
				inWorld(t, func(w *world) {
					final := false
					w.fail = func(_ context.Context, c call) error {
						if !final && c.kind == first {
							return err
						}
						return nil
					}
					w.start()
					for i := range 10 {
						w.show(chatA, "s", strings.Repeat("x", i+1))
						w.sleep(time.Second)
					}
					if n := len(w.asked(first)); n != 1 {
						t.Errorf("%d tries of the preview, want no second one yet", n)
					}
					final = true
					w.answer(chatA, "hello", "s")
					w.ended(chatA, "s", false)
					w.sleep(time.Minute)
					w.wantRead(chatA, "hello")
				})
			})
		}
	}
}

// If the final edit fails, for example with a 429 (rate limit), the answer is not lost.
func TestFinalEditFails(t *testing.T) {
	for name, err := range map[string]error{
		"rate limit": &channels.RateError{After: time.Minute}, "network": errDown,
		"account's rate limit": &channels.RateError{After: time.Minute, Account: true},
		"uncertain":            channels.ErrUncertain,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.show(chatA, "s", "hel")
				w.sleep(time.Second)
				w.wantRead(chatA, "hel")
				w.Fail(3, err)
				id := w.answer(chatA, "hello", "s")
				w.ended(chatA, "s", false)
				next := w.put(chatA, "next")
				w.sleep(3 * time.Minute)
				w.wantRead(chatA, "hello", "next")
				w.wantState(id, bus.Sent)
				w.wantState(next, bus.Sent)
				calls := w.asked("edit")
				if gap := calls[1].at - calls[0].at; len(calls) != 4 || gap < time.Second/2 {
					t.Errorf("final edits %v, want 4 with pauses", calls)
				}
			})
		})
	}
}

// While an account is paused, no edits are sent either.
func TestPreviewWhilePaused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.Fail(1, &channels.RateError{After: time.Minute, Account: true})
		w.put(thread("b", ""), "other")
		w.show(chatA, "s", "hell")
		w.sleep(10 * time.Second)
		w.answer(chatA, "hello", "s")
		w.sleep(49 * time.Second)
		w.wantRead(chatA, "hel")
		w.sleep(time.Second)
		w.wantRead(chatA, "hello")
	})
}

// If a person deleted the preview, the answer comes as a new message, and the rest of the
// preview is removed.
func TestPreviewDeleted(t *testing.T) {
	for deleted, want := range map[int][]string{
		0: {"the first", "second!"}, 1: {"the first", "second!"},
	} {
		inWorld(t, func(w *world) {
			w.SetLimits(small)
			w.start()
			w.show(chatA, "s", "the firs\n\nsecond")
			w.sleep(2 * time.Second)
			w.Full.Delete(w.Sent()[deleted].ID)
			id := w.answer(chatA, "the first\n\nsecond!", "s")
			w.wantRead(chatA, want...)
			w.wantState(id, bus.Sent)
		})
	}
}

// If the answer is shorter than the preview, no outdated text stays.
func TestAnswerIsShorter(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.start()
		w.show(chatA, "s", "the first\n\nsecond\n\nthird")
		w.sleep(4 * time.Second)
		w.wantRead(chatA, "the first", "second", "third")
		w.fail = func(_ context.Context, c call) error {
			if c.kind == "remove" && len(w.asked("remove")) == 1 {
				return &channels.RateError{After: time.Minute}
			}
			return nil
		}
		id := w.answer(chatA, "sorry", "s")
		w.put(chatA, "next")
		w.sleep(time.Minute)
		w.wantRead(chatA, "sorry", "next")
		w.wantState(id, bus.Sent)
		if n := len(w.asked("edit")); n != 1 {
			t.Errorf("%d edits, want 1", n)
		}
	})
}

// Messages that can't be removed stay, and delay nothing.
func TestAnswerIsShorterButRestStays(t *testing.T) {
	for _, err := range []error{channels.ErrRefused, channels.ErrUncertain, errDown} {
		inWorld(t, func(w *world) {
			w.SetLimits(small)
			w.fail = func(_ context.Context, c call) error {
				if c.kind == "remove" {
					return err
				}
				return nil
			}
			w.start()
			w.show(chatA, "s", "the first\n\nsecond")
			w.sleep(2 * time.Second)
			w.answer(chatA, "sorry", "s")
			w.put(chatA, "next")
			w.wantRead(chatA, "sorry", "second", "next")
		})
	}
}

// Topics that stream at the same time don't mix their texts.
func TestTopicsStreamAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		var text [3]string
		for i := range 50 {
			for n := range text {
				text[n] += fmt.Sprintf("topic %d word %d. ", n, i)
				w.show(thread("a", fmt.Sprint(n)), fmt.Sprint("s", n), text[n])
			}
			w.sleep(200 * time.Millisecond)
		}
		for n := range text {
			to := thread("a", fmt.Sprint(n))
			for _, c := range w.asked("send", "edit") {
				if c.to == to && !strings.HasPrefix(text[n], c.text) {
					t.Fatalf("topic %d shows %q", n, c.text)
				}
			}
			w.answer(to, text[n], fmt.Sprint("s", n))
			w.wantRead(to, text[n])
		}
	})
}

// Progress that comes after the answer was handed out, or after the end of the stream, shows no
// preview again.
func TestLateProgress(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.answer(chatA, "hello", "s")
		for range 3 {
			w.show(chatA, "s", "hell")
			w.sleep(10 * time.Second)
			w.ended(chatA, "s", false)
		}
		w.show(chatA, "s", "")
		calls := len(w.asked("send", "edit", "type"))
		w.sleep(10 * time.Minute)
		if n := len(w.asked("send", "edit", "type")); n != calls {
			t.Errorf("%d calls after the end", n-calls)
		}
		w.wantRead(chatA, "hello")
	})
}

// The router may see the end of a stream before it sees the answer. The preview waits for the
// answer.
func TestEndBeforeAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.ended(chatA, "s", false)
		w.sleep(time.Second)
		w.answer(chatA, "hello", "s")
		w.wantRead(chatA, "hello")
	})
}

// The next answer may begin to grow while the one before it can't be delivered yet.
func TestNextAnswerBegins(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "one", "fir")
		w.sleep(time.Second)
		w.Fail(1, &channels.RateError{After: time.Minute})
		w.answer(chatA, "first", "one")
		w.show(chatA, "two", "sec")
		w.sleep(10 * time.Second)
		w.show(chatA, "two", "seco")
		w.sleep(51 * time.Second)
		w.wantRead(chatA, "first", "seco")
		w.answer(chatA, "second", "two")
		w.wantRead(chatA, "first", "second")
	})
}

// The router may see the next answer grow before it sees the end of the one before.
func TestNextAnswerSeenFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "one", "fir")
		w.sleep(time.Second)
		w.show(chatA, "two", "sec")
		w.answer(chatA, "first", "one")
		w.sleep(time.Second)
		w.wantRead(chatA, "first", "sec")
	})
}

// An answer that was given up and that a person retries is sent as a new message. Nobody would
// notice a change of the old message.
func TestRetryOfStream(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.Fail(2, channels.ErrRefused) // the edit, and the new message after it
		id := w.answer(chatA, "hello", "s")
		w.wantState(id, bus.Dead)
		w.person(w.outbox.Retry, id)
		w.wantRead(chatA, "hel", "hello")
	})
}

// A message that doesn't belong to the stream may come in between.
func TestMessageDuringStream(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.put(chatA, "status: fine")
		w.show(chatA, "s", "hell")
		w.sleep(time.Second)
		w.wantRead(chatA, "hell", "status: fine")
		w.answer(chatA, "hello", "s")
		w.wantRead(chatA, "hello", "status: fine")
	})
}

// A channel that can't edit gets only the answer. The same is true if streaming is off.
func TestNoPreviews(t *testing.T) {
	inWorld(t, func(w *world) {
		memory := bus.Address{Account: "memory", Chat: "a"}
		w.startWith(router.Account{Name: "memory", Channel: &w.Memory, Streaming: true},
			router.Account{Name: "full", Channel: w.platform})
		for _, to := range []bus.Address{memory, chatA} {
			w.show(to, "s"+to.Account, "hel")
			w.sleep(10 * time.Second)
			w.wantRead(to)
			w.answer(to, "hello", "s"+to.Account)
			w.wantRead(to, "hello")
		}
		if n := len(w.asked("edit")); n != 0 {
			t.Errorf("%d edits", n)
		}
	})
}

// A process is killed at any call for an answer that was streamed. Only a new message can arrive
// twice.
func TestKilledDuringStream(t *testing.T) {
	for nth := 1; nth <= 4; nth++ { // the calls: the preview, an edit, and two more messages
		for _, executed := range []bool{false, true} {
			t.Run(fmt.Sprint("call ", nth, " executed ", executed), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.SetLimits(small)
					dir := w.kill(nth, executed)
					final := "the first\n\nsecond\n\nextra"
					id := w.store(bus.OutboundMessage{To: chatA, Text: final, Stream: "s"})
					w.exec("UPDATE outbox SET state = 'dead'") // so that it isn't sent before the preview grew
					stop := w.start()
					w.show(chatA, "s", "the fi")
					w.sleep(time.Second)
					w.person(w.outbox.Retry, id)
					stop()
					w.revive(dir)
					w.exec("UPDATE outbox SET state = 'waiting' WHERE state = 'dead'")
					w.start()
					want := []string{"the first", "second", "extra"}
					switch {
					case nth == 1 && executed: // the id of the preview's message was never known
						want = append([]string{"the fi"}, want...)
					case nth > 2 && executed:
						want = slices.Insert(want, nth-1, want[nth-2])
					}
					w.wantRead(chatA, want...)
					w.wantState(id, bus.Sent)
				})
			})
		}
	}
}

// A process is killed while it edits or removes messages because the answer is shorter than the
// preview.
func TestKilledWhileRemoving(t *testing.T) {
	for nth := 3; nth <= 4; nth++ {
		for _, executed := range []bool{false, true} {
			inWorld(t, func(w *world) {
				w.SetLimits(small)
				dir := w.kill(nth, executed)
				stop := w.start()
				w.show(chatA, "s", "the first\n\nsecond")
				w.sleep(2 * time.Second)
				id := w.answer(chatA, "sorry", "s")
				stop()
				w.revive(dir)
				w.start()
				w.wantRead(chatA, "sorry")
				w.wantState(id, bus.Sent)
			})
		}
	}
}

// An answer that comes just before the process ends still replaces the preview.
func TestStopDuringStream(t *testing.T) {
	inWorld(t, func(w *world) {
		stop := w.start()
		for i := range 20 {
			w.show(thread(fmt.Sprint(i), ""), fmt.Sprint("s", i), "hel")
		}
		w.sleep(time.Second)
		for i := range 20 {
			w.store(bus.OutboundMessage{
				To: thread(fmt.Sprint(i), ""), Text: "hello", Stream: fmt.Sprint("s", i)})
		}
		stop()
		for i := range 20 {
			w.wantRead(thread(fmt.Sprint(i), ""), "hello")
		}
	})
}

// If a person drops a message, its preview is forgotten.
func TestDropForgetsPreview(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.Fail(1, errDown)
		id := w.answer(chatA, "hello", "s")
		w.person(w.outbox.Drop, id)
		if n := w.rows("previews"); n != 0 {
			t.Errorf("%d previews are noted", n)
		}
	})
}
