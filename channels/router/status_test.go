package router_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/router"
)

// A status line stands below the text and is replaced by the answer.
func TestStatus(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Status: "reads notes"})
		w.sleep(time.Second)
		w.wantRead(chatA, "_reads notes_")
		w.progress(bus.Progress{To: chatA, Stream: "s", Text: "I see.", Status: "counts"})
		w.sleep(time.Second)
		w.wantRead(chatA, "I see.\n\n_counts_")
		w.answer(chatA, "I see. Three.", "s")
		w.wantRead(chatA, "I see. Three.")
	})
}

// The status shows every few seconds how long the work takes. It shows no secrets.
func TestStatusSince(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.router.SetSecrets(router.Secrets{"sesame-open"})
		p := bus.Progress{To: chatA, Stream: "s", Status: "counts", Since: time.Now()}
		w.progress(p)
		w.sleep(2 * time.Second)
		w.wantRead(chatA, "_counts_")
		w.sleep(9 * time.Second)
		w.wantRead(chatA, "_counts · 8 s_")
		w.sleep(2 * time.Minute)
		w.wantRead(chatA, "_counts · 2 min_")
		p.Status = "🔧 `look here`\n⚙️ `exec ls`"
		w.progress(p)
		w.sleep(2 * time.Second)
		w.wantRead(chatA, "🔧 `look here`\n⚙️ `exec ls` · 2 min")
		p.Status, p.Text = "⚙️ `exec sesame-open`", "I see."
		w.progress(p)
		w.sleep(2 * time.Second)
		w.wantRead(chatA, "I see.")
		p.Status, p.Text = "⚙️ `exec sesame-o…`\n🔧 `look sesame`", ""
		w.progress(p)
		w.sleep(2 * time.Second)
		w.wantRead(chatA, "⚙️ `exec …`\n🔧 `look sesame` · 2 min")
	})
}

// If a message has no room for the status line, only the text is shown.
func TestStatusWithoutRoom(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Text: "the first", Status: "counts"})
		w.sleep(time.Second)
		w.wantRead(chatA, "the first")
	})
}

// An answer that was stopped keeps its text, loses its status line, and is forgotten.
func TestStopped(t *testing.T) {
	for _, tt := range []struct {
		name         string
		text, status string // shown
		last         string // the newest status, too late to be shown
		want         string
	}{
		{"text and status", "I see.", "counts", "counts", "I see. … (stopped)"},
		{"status only", "", "counts", "counts", "… (stopped)"},
		{"status gone, but still shown", "I see.", "counts", "", "I see. … (stopped)"},
		{"text only", "I see.", "", "", "I see. … (stopped)"},
		{"in code", "```\nls\n```", "", "", "```\nls\n```\n\n… (stopped)"},
		{"in a table", "|a|\n|-|\n|b|", "", "", "|a|\n|-|\n|b|\n\n… (stopped)"},
		{"at an address", "[a]\n\n[a]: http://b", "", "", "[a]\n\n[a]: http://b\n\n… (stopped)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.progress(bus.Progress{To: chatA, Stream: "s", Text: tt.text, Status: tt.status})
				w.sleep(time.Second)
				w.progress(bus.Progress{To: chatA, Stream: "s", Text: tt.text, Status: tt.last})
				w.ended(chatA, "s", true)
				w.put(chatA, "Stopped.")
				w.wantRead(chatA, tt.want, "Stopped.")
				w.show(chatA, "s", "late")
				w.sleep(10 * time.Minute)
				w.wantRead(chatA, tt.want, "Stopped.")
				if n := w.rows("previews"); n != 0 {
					t.Errorf("%d previews are noted after the end", n)
				}
			})
		})
	}
}

// An answer that waits for somebody is not stopped: its text stays, and a message that only says
// what the agent was doing is removed. The answer goes on below the question.
func TestWaits(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string // above the question
	}{
		{"text and status", "I see.", []string{"I see."}},
		{"status only", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.progress(bus.Progress{To: chatA, Stream: "s", Text: tt.text, Status: "asks"})
				w.sleep(time.Second)
				w.store(bus.OutboundMessage{To: chatA, Text: "Which?"})
				w.progress(bus.Progress{To: chatA, Stream: "s", Ended: true, Void: true, Waits: true})
				w.sleep(10 * time.Second)
				want := append(slices.Clone(tt.want), "Which?")
				w.wantRead(chatA, want...)
				if n := w.rows("previews"); n != 0 {
					t.Errorf("%d previews are noted while the answer waits", n)
				}
				w.show(chatA, "s", "Then")
				w.sleep(2 * time.Second)
				w.wantRead(chatA, append(want, "Then")...)
				w.store(bus.OutboundMessage{To: chatA, Text: "Then this.", Stream: "s"})
				w.sleep(time.Second)
				w.wantRead(chatA, append(want, "Then this.")...)
			})
		})
	}
}

// If the platform limits the calls, the status of an answer that waits is removed later. If it
// refuses them, the status stays.
func TestWaitsForLimit(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"limit", &channels.RateError{After: 3 * time.Second}, nil},
		{"refusal", channels.ErrRefused, []string{"_asks_"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fail = func(_ context.Context, c call) error {
					if c.kind == "remove" && c.at < 4*time.Second {
						return tt.err
					}
					return nil
				}
				w.start()
				w.progress(bus.Progress{To: chatA, Stream: "s", Status: "asks"})
				w.sleep(time.Second)
				w.progress(bus.Progress{To: chatA, Stream: "s", Ended: true, Void: true, Waits: true})
				w.sleep(10 * time.Second)
				w.wantRead(chatA, tt.want...)
			})
		})
	}
}

// The message "Stopped." is sent after the last edit of the stopped answer, even if it comes
// before the news of the stop. The mark "(stopped)" fits into the message.
func TestStoppedBefore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(channels.Limits{Text: 50, Measure: small.Measure, EditInterval: time.Second})
		w.start()
		text := strings.Repeat("word ", 8) + "12345678"
		w.show(chatA, "s", "word")
		w.sleep(time.Second)
		w.show(chatA, "s", text)
		w.store(bus.OutboundMessage{To: chatA, Text: "Stopped.", Stops: []string{"s"}})
		w.sleep(0) // "Stopped." now comes before the rest
		w.show(chatA, "s", text+" late")
		w.ended(chatA, "s", true)
		w.sleep(10 * time.Minute)
		want := strings.Repeat("word ", 7) + "… (stopped)"
		w.wantCalls(shows, `send "word" at 1s`, fmt.Sprintf("edit %q at 1s", want),
			`send "Stopped." at 1s`)
	})
}

// A message that must wait for the last edit of a stopped answer also has the state "waiting" in
// the table. It is not sent if it is dropped meanwhile, for example because a person is
// forgotten.
func TestDroppedBehindStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Text: "I see.", Status: "counts"})
		w.sleep(2 * time.Second)
		w.Fail(1, &channels.RateError{After: time.Minute})
		id := w.store(bus.OutboundMessage{To: chatA, Text: "Stopped.", Stops: []string{"s"}})
		w.sleep(time.Second)
		w.wantState(id, bus.Waiting)
		w.exec("UPDATE outbox SET state = 'dropped' WHERE id = $1", id)
		w.sleep(10 * time.Minute)
		w.wantRead(chatA, "I see. … (stopped)")
		if n := w.router.Pending(chatA.Account); n != 0 {
			t.Errorf("%d messages wait", n)
		}
	})
}

// The message "Stopped." also comes after the last edit if the platform asks for a pause first. If
// an earlier process may have sent the message, that is still counted.
func TestStoppedBeforeWhileLimited(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.poll = time.Hour // at the end of the pause only the worker reads the table
			stop := w.start()
			w.progress(bus.Progress{To: chatA, Stream: "s", Text: "I see.", Status: "counts"})
			w.sleep(2 * time.Second)
			stopped := bus.OutboundMessage{To: chatA, Text: "Stopped.", Stops: []string{"s"}}
			mark, uncertain := "I see. … (stopped)", 0
			if restart {
				stop()
				w.store(stopped)
				w.exec("UPDATE outbox SET state = 'sending'")
				w.Fail(1, &channels.RateError{After: time.Minute})
				mark, uncertain = "… (stopped)", 1
				w.start()
			} else {
				w.Fail(1, &channels.RateError{After: time.Minute})
				w.store(stopped)
			}
			w.sleep(2 * time.Minute)
			w.wantCalls(shows, `send "I see.\n\n_counts_" at 1s`, fmt.Sprintf("edit %q at 2s", mark),
				fmt.Sprintf("edit %q at 1m2s", mark), `send "Stopped." at 1m2s`)
			if n := w.router.Stats().Uncertain.Load(); n != int64(uncertain) {
				t.Errorf("%d counted as uncertain, want %d", n, uncertain)
			}
		})
	}
}

// The status line of a stopped answer is removed even if the platform asks for a pause first,
// and if the next answer has begun meanwhile.
func TestStoppedWhileLimited(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Text: "I see.", Status: "counts"})
		w.sleep(2 * time.Second)
		w.Fail(2, &channels.RateError{After: time.Minute})
		w.ended(chatA, "s", true)
		w.show(chatA, "next", "And")
		w.sleep(10 * time.Second)
		w.show(chatA, "next", "And then")
		w.sleep(3 * time.Minute)
		w.wantRead(chatA, "I see. … (stopped)", "And then")
		w.answer(chatA, "And then?", "next")
		w.wantRead(chatA, "I see. … (stopped)", "And then?")
	})
}

// The next answer begins and ends before the status line can be removed.
func TestStoppedAndAnsweredWhileLimited(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Text: "I see.", Status: "counts"})
		w.sleep(2 * time.Second)
		w.Fail(1, &channels.RateError{After: time.Minute})
		w.ended(chatA, "s", true)
		w.show(chatA, "next", "And")
		w.answer(chatA, "And then?", "next")
		w.sleep(2 * time.Minute)
		w.wantRead(chatA, "I see. … (stopped)", "And then?")
		w.wantCalls([]string{"send"}, `send "I see.\n\n_counts_" at 1s`, `send "And then?" at 1m2s`)
	})
}

// An answer is stopped during a slow edit, and the next answer begins before the edit is done.
func TestStoppedWhileSlow(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.kind == "edit" {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Text: "I", Status: "counts"})
		w.sleep(2 * time.Second)
		w.progress(bus.Progress{To: chatA, Stream: "s", Text: "I see.", Status: "counts"})
		w.sleep(time.Second)
		w.ended(chatA, "s", true)
		w.show(chatA, "next", "And")
		w.sleep(time.Minute)
		w.wantRead(chatA, "I see. … (stopped)", "And")
	})
}

// A status line that can't be removed yet doesn't delay the stop of the gateway.
func TestStopAfterStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		stop := w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Status: "counts"})
		w.sleep(2 * time.Second)
		w.Fail(1, &channels.RateError{After: time.Minute})
		w.ended(chatA, "s", true)
		stop()
		if took := time.Since(w.began); took != 2*time.Second {
			t.Errorf("Run took %v to end", took-2*time.Second)
		}
	})
}

// If the preview of a stopped answer can't be edited, it is left as it is.
func TestStoppedButRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.progress(bus.Progress{To: chatA, Stream: "s", Status: "counts"})
		w.sleep(2 * time.Second)
		w.Fail(1, channels.ErrRefused)
		w.ended(chatA, "s", true)
		w.sleep(10 * time.Minute)
		if n := len(w.asked("edit")); n != 1 {
			t.Errorf("%d tries, want 1", n)
		}
		if n := w.rows("previews"); n != 0 {
			t.Errorf("%d previews are noted after the end", n)
		}
	})
}

// The typing indicator is set at once and every four seconds until there is text to read.
func TestTyping(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.show(chatA, "s", "")
		w.sleep(5 * time.Second)
		w.show(chatA, "s", "") // new progress doesn't change the time of the next indicator
		w.sleep(4 * time.Second)
		w.show(chatA, "s", "hel")
		w.sleep(10 * time.Second)
		w.answer(chatA, "hello", "s")
		w.wantCalls([]string{"type", "send", "edit"}, `type "" at 0s`, `type "" at 4s`,
			`type "" at 8s`, `send "hel" at 9s`, `edit "hello" at 19s`)
	})
}

// A typing indicator that hangs doesn't delay answers. At most eight hang at the same time.
func TestTypingHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(ctx context.Context, c call) error {
			if c.kind == "type" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		stop := w.start()
		for i := range 20 {
			w.show(thread(fmt.Sprint(i), ""), fmt.Sprint("s", i), "")
		}
		if n := len(w.asked("type")); n != 8 {
			t.Errorf("%d indicators are being set at once, want 8", n)
		}
		for i := range 20 {
			w.answer(thread(fmt.Sprint(i), ""), "hello", fmt.Sprint("s", i))
			w.wantRead(thread(fmt.Sprint(i), ""), "hello")
		}
		w.sleep(5 * time.Second) // by then, the hanging calls are given up
		w.show(chatA, "next", "")
		if n := len(w.asked("type")); n != 9 {
			t.Errorf("%d indicators were set, want one more", n)
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("a typing indicator kept Run from ending for %v", took)
		}
	})
}

// Two members of a group are answered at the same time. Both answers grow visibly, and the
// typing indicator is set as often as for one. An answer that is stopped meanwhile loses its
// status line.
func TestTwoAnswersGrow(t *testing.T) {
	for name, stop := range map[string]func(w *world){
		"message": func(w *world) {
			w.store(bus.OutboundMessage{To: chatA, Text: "Stopped.", Stops: []string{"a"}})
		},
		"end": func(w *world) {
			w.ended(chatA, "a", true)
			w.put(chatA, "Stopped.")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				for i := range 100 {
					for j := range 2 { // the order changes each second
						stream := []string{"b", "a"}[(i/10+j)%2]
						w.progress(bus.Progress{To: chatA, Stream: stream, Text: stream, Status: "counts"})
					}
					w.sleep(100 * time.Millisecond)
				}
				w.wantRead(chatA, "a\n\n_counts_", "b\n\n_counts_")
				if n := len(w.asked("type")); n > 3 {
					t.Errorf("the indicator was set %d times in ten seconds", n)
				}
				w.show(chatA, "b", "b, too")
				stop(w)
				w.sleep(10 * time.Second)
				w.wantRead(chatA, "a … (stopped)", "b, too", "Stopped.")
				w.answer(chatA, "b, too.", "b")
				w.wantRead(chatA, "a … (stopped)", "b, too.", "Stopped.")
			})
		})
	}
}

// A typing indicator that fails has no effect.
func TestTypingFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(_ context.Context, c call) error {
			if c.kind == "type" {
				return channels.ErrRefused
			}
			return nil
		}
		w.start()
		w.show(chatA, "s", "")
		w.answer(chatA, "hello", "s")
		w.wantRead(chatA, "hello")
	})
}

// A typing indicator that the platform limits is not set again before the limit ends. Other chats
// keep theirs, unless the limit is for the account. No answer waits.
func TestTypingLimited(t *testing.T) {
	other := thread("other", "")
	for _, account := range []bool{false, true} {
		t.Run(fmt.Sprintf("account %v", account), func(t *testing.T) {
			inWorld(t, func(w *world) {
				limited := true
				w.fail = func(_ context.Context, c call) error {
					if c.kind == "type" && c.to == chatA && limited {
						limited = false
						return &channels.RateError{After: 10 * time.Second, Account: account}
					}
					return nil
				}
				w.start()
				w.show(chatA, "s", "")
				w.sleep(time.Second)
				w.show(other, "t", "")
				w.sleep(time.Second)
				w.answer(other, "hello", "t")
				w.sleep(12 * time.Second)
				w.answer(chatA, "hello", "s")
				want := []string{`type "" at 0s`, `type "" at 1s`, `send "hello" at 2s`,
					`type "" at 12s`, `send "hello" at 14s`}
				if account {
					want = slices.Delete(want, 1, 2)
				}
				w.wantCalls([]string{"type", "send"}, want...)
			})
		})
	}
}

// A finisher is a platform that is told when a message is complete, before the next one is sent.
type finisher struct{ *platform }

func (f finisher) Finish(_ context.Context, to bus.Address, ids, answers []string) {
	id := strings.Join(append(slices.Clone(ids), answers...), "+")
	_ = f.enter(context.Background(), call{"finish", id, to, id, 0}) // it can't fail
}

func TestFinish(t *testing.T) {
	inWorld(t, func(w *world) {
		w.SetLimits(small)
		w.startWith(router.Account{Name: "full", Channel: finisher{w.platform}, Streaming: true})
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.Fail(1, channels.ErrRefused) // then it is sent as a new message
		w.answer(chatA, "hello", "s")
		w.store(bus.OutboundMessage{To: chatA, Text: "the first\n\nsecond", Answers: []string{"q"}})
		synctest.Wait()
		w.wantCalls([]string{"send", "edit", "finish"}, `send "hel" at 1s`, `edit "hello" at 1s`,
			`send "hello" at 1s`, `finish "2" at 1s`,
			`send "the first" at 1s`, `send "second" at 1s`, `finish "3+4+q" at 1s`)
	})
}

// An answer that was stopped is complete, too.
func TestFinishStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startWith(router.Account{Name: "full", Channel: finisher{w.platform}, Streaming: true})
		w.show(chatA, "s", "hel")
		w.sleep(time.Second)
		w.ended(chatA, "s", true)
		w.wantCalls([]string{"send", "edit", "finish"}, `send "hel" at 1s`,
			`edit "hel … (stopped)" at 1s`, `finish "1" at 1s`)
	})
}
