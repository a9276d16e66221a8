package agent

import (
	"context"
	"slices"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
)

func TestNothingToStop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("again"))
		w.start()
		w.say("a", "/stop", "hello", "/stop", "hello")
		w.wantQuiet()
		w.wantAnswers("a", "There is nothing to stop.", "hi", "There is nothing to stop.", "again")
	})
}

// Pitfall: "/stop drops completed rounds from the transcript, and the queued messages run anyway".
func TestStopDuringModelCall(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		round := uses("look")
		round.Usage = llm.Usage{Input: 100, Output: 10, Cached: 50}
		w.tools(act("look", tool.Once, always("seen")))
		w.model.Queue(round, held(llmtest.Say("never"), make(chan struct{})))
		w.opts.QueueMode = pool.Followup
		w.start()
		w.say("a", "hello", "two", "three", "/stop")
		w.wantQuiet()
		w.wantAnswers("a", "Stopped, and discarded 2 waiting messages.")
		w.wantTranscript("a", "user: hello", "assistant:  look({})", "tool: seen",
			"assistant: "+turn.MarkStopped)
		wantLines(t, "turns", w.column(turnStates), []string{"1 stopped 1 1"})
		wantLines(t, "inbox", w.column(inboxStates),
			[]string{"1 done", "2 dropped", "3 dropped", "4 done"})
		if u := w.info("a").Usage; u.Input < 100 || u.Output != 10 || u.Cached != 50 {
			t.Errorf("usage of the session is %+v, want that of the round at least", u)
		}
		w.model.Queue(llmtest.Say("fresh"))
		w.say("a", "four")
		w.wantQuiet()
		w.wantAsked(3, "user: hello", "assistant:  look({})", "tool: seen",
			"assistant: "+turn.MarkStopped, "user: four")
		w.wantAnswers("a", "Stopped, and discarded 2 waiting messages.", "fresh")
	})
}

// Each call that has not ended gets a result. A later result of the tool is not written.
func TestStopDuringTools(t *testing.T) {
	t.Parallel()
	for _, effect := range []tool.Effect{tool.Once, tool.Pure} {
		t.Run(effect.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				release := make(chan struct{})
				late := 0
				w.tools(act("quick", effect, always("done")),
					act("stubborn", effect, func(context.Context) (string, error) {
						<-release // ignores its context
						return "too late", nil
					}),
					act("last", tool.Once, func(context.Context) (string, error) {
						late++
						return "", nil
					}))
				calls := []string{"quick", "stubborn"}
				want := []string{"user: hello", "assistant:  quick({}) stubborn({})",
					"tool: done", "tool: " + turn.ResultStopped}
				if effect == tool.Once {
					calls = append(calls, "last")
					want[1] += " last({})"
					want = append(want, "tool: "+turn.ResultStopped)
				}
				w.model.Queue(uses(calls...))
				w.start()
				w.say("a", "hello", "/stop")
				close(release)
				w.wantQuiet()
				w.wantAnswers("a", "Stopped.")
				w.wantTranscript("a", append(want, "assistant: "+turn.MarkStopped)...)
				if late != 0 {
					t.Error("a tool began after the stop")
				}
			})
		})
	}
}

// /stop also discards messages that are still being collected, and a turn that waits for a slot.
func TestStopBeforeTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("other"), release), llmtest.Say("late"))
		w.opts.Slots = 1
		w.start()
		w.say("b", "hello")
		w.say("a", "/queue collect", "one", "two", "/stop")
		w.say("c", "one", "/stop")
		w.sleep(time.Minute)
		close(release)
		w.say("a", "three")
		w.wantQuiet()
		w.wantAsked(2, "user: three")
		w.wantAnswers("c", "Stopped.")
		if told := w.outbox("a"); told[1].Text != "Stopped, and discarded 2 waiting messages." {
			t.Errorf("chat a was told %q", told[1].Text)
		}
	})
}

// /stop ends only its own conversation. A message after it is answered.
func TestStopIsOfOneSession(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("other"), release),
			held(llmtest.Say("never"), make(chan struct{})), llmtest.Say("after"))
		w.start()
		w.say("b", "hello")
		w.say("a", "hello")
		w.put(w.message("a", "/stop"), w.message("a", "go on"))
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "Stopped.", "after")
		w.wantAnswers("b", "other")
	})
}

// If a turn is stopped before its tool asks to wait for a person, the call is cancelled.
func TestStopBeforeToolWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release, cancelled := make(chan struct{}), 0
		asks := act("asks", tool.Once, nil)
		asks.Run = func(context.Context, tool.Call) (tool.Result, error) {
			<-release
			return tool.Result{Wait: &tool.Wait{Text: "Which?", For: time.Hour,
				State: []byte("{}"), Cancel: func() { cancelled++ }}}, nil
		}
		w.tools(asks)
		w.model.Queue(uses("asks"))
		w.start()
		w.say("a", "hello", "/stop")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "Stopped.")
		if cancelled != 1 {
			t.Errorf("the call was ended %d times, want once", cancelled)
		}
	})
}

// A guest can stop an answer that is only for them, and can't stop work that others have asked
// for.
func TestStopByGuest(t *testing.T) {
	t.Parallel()
	in := func(w *world, sender, text string, r bus.Role) bus.InboundMessage {
		m := w.message("g", text)
		m.Group, m.Role, m.Sender = true, r, bus.Sender{ID: sender, Name: "P" + sender}
		return m
	}
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		var stopped []string
		w.outside.stopped = func(key string, _ *bus.InboundMessage) { stopped = append(stopped, key) }
		w.opts.QueueMode = pool.Followup
		w.model.Queue(held(llmtest.Say("for the owner"), release), llmtest.Say("for the user"))
		w.start()
		w.put(in(w, "7", "hello", bus.Owner))
		w.settle()
		w.put(in(w, "8", "me too", bus.Guest),
			in(w, "9", "and me", bus.User), in(w, "8", "/stop", bus.Guest))
		w.settle()
		close(release)
		w.wantQuiet()
		w.wantAnswers("g", "I have discarded one waiting message of yours. The answer under way is "+
			"not only yours: a user of this gateway can stop it.", "for the owner", "for the user")
		if len(stopped) > 0 {
			t.Errorf("what runs in %q was ended", stopped)
		}
	})
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Followup
		w.model.Queue(held(llmtest.Say("never"), make(chan struct{})), llmtest.Say("for the user"))
		w.start()
		w.put(in(w, "8", "hello", bus.Guest))
		w.settle()
		w.put(in(w, "9", "and me", bus.User), in(w, "8", "/stop", bus.Guest))
		w.wantQuiet()
		w.wantAnswers("g", "Stopped.", "for the user")
	})
}

// /stop also answers a message whose answer a newer message has interrupted, whether the next turn
// has begun, waits for an answer or has not begun yet. So the message loses its reaction.
func TestStopAfterInterrupt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"not begun", "running", "suspended"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(ask.New())
				w.opts.QueueMode = pool.Interrupt
				w.opts.Debounce = map[string]time.Duration{"test": time.Minute}
				w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
				w.start()
				w.say("a", "old")
				w.sleep(2 * time.Minute)
				w.say("a", "new")
				switch name {
				case "running":
					w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
					w.sleep(2 * time.Minute)
				case "suspended":
					w.model.Queue(asksFor("Which?"))
					w.sleep(2 * time.Minute)
				}
				w.say("a", "/stop")
				w.wantQuiet()
				out := w.outbox("a")
				got := slices.Sorted(slices.Values(out[len(out)-1].Answers))
				if !slices.Equal(got, []string{"1", "2", "3"}) {
					t.Errorf("/stop answers the messages %q, want all three", got)
				}
			})
		})
	}
}
