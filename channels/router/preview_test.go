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

// ended says that nothing more comes of a stream.
func (w *world) ended(to bus.Address, stream string, void bool) {
	w.progress(bus.Progress{To: to, Stream: stream, Ended: true, Void: void})
}

// An answer is shown after a second, or the edit interval if that is shorter; not before, and one
// that is ready by then was never shown.
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

// At most one edit per interval and conversation, and the last text is the answer's.
func TestPreviewInterval(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(channels.Limits{Text: 50, Measure: small.Measure, EditInterval: time.Second})
		w.start()
		var text string
		for i := range 50 { // a message and then some
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

// What a cut moves from one message to the next is shown all the time: growing past the limit, a
// message gives back what comes after the last good place to cut only when the next one shows it.
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

// What a platform would refuse as not modified is no reason for an edit.
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

// Over the limit a new message is begun; the answer takes the place of all, and goes on.
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

// The first message of a preview counts for the rate like any other, and so do those after it.
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

// What is there already is not written again.
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

// Lost: the final text arrives exactly once, also when every preview failed.
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

// Lost: a 429 on the final edit.
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

// A paused account sends no edits either.
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

// The preview was deleted by a person: the answer comes as a new message, and what is left of the
// preview goes.
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

// A preview that came out longer than the answer: no stale text stays.
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

// What can't be removed stays, and holds nothing up.
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

// Lost: two topics streaming at once shred each other.
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

// Progress that comes after the answer was handed out, or after the end of the stream, resurrects
// nothing.
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

// The end of a stream may be seen before its answer is: the preview waits for it.
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

// The next answer begins to grow while the one before can't be delivered yet.
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

// The next answer is seen to grow before the one before it is seen to end.
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

// An answer that was given up and is put back comes as a new message: nobody would see the old
// one change.
func TestRetryOfStream(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.Fail(2, channels.ErrRefused) // the edit and the new message
		id := w.answer(chatA, "hello", "s")
		w.wantState(id, bus.Dead)
		w.person(w.outbox.Retry, id)
		w.wantRead(chatA, "hel", "hello")
	})
}

// A message that has nothing to do with the stream comes between.
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

// Channels that can't edit get only the answer, and so do those for which streaming is off.
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

// A restart between a preview and its answer: the answer goes into the preview.
func TestRestartDuringStream(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.SetLimits(small)
			stop := w.start()
			w.show(chatA, "s", "the first\n\nsec")
			w.sleep(2 * time.Second)
			stop()
			w.start()
			if resumed { // it grows once more
				w.show(chatA, "s", "the firs")
				w.sleep(2 * time.Second)
				w.wantRead(chatA, "the firs", "sec")
			}
			w.answer(chatA, "the first\n\nsecond", "s")
			w.wantRead(chatA, "the first", "second")
			if n := w.rows("previews"); n != 0 {
				t.Errorf("%d previews are noted after the end", n)
			}
		})
	}
}

// A process that is killed at any call of an answer that was streamed. Only a new message can
// come twice.
func TestKilledDuringStream(t *testing.T) {
	for nth := 1; nth <= 4; nth++ { // the preview, then an edit and two more messages
		for _, executed := range []bool{false, true} {
			t.Run(fmt.Sprint("call ", nth, " executed ", executed), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.SetLimits(small)
					dir := w.kill(nth, executed)
					final := "the first\n\nsecond\n\nextra"
					id := w.store(bus.OutboundMessage{To: chatA, Text: final, Stream: "s"})
					w.exec("UPDATE outbox SET state = 'dead'") // until it grew
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
					case nth == 1 && executed: // its id was never known
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

// A process that is killed at the edit or the removal of an answer that came out shorter.
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

// The answer comes in the last moment before the end: it still takes the preview's place.
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

// The preview of a message that a person drops is forgotten.
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
