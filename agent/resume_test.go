package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// leave writes the state that a killed process leaves of a turn in chat. attempts says how often
// the turn was begun or resumed. rest are the messages of the turn after its question.
func (w *world) leave(chat, question string, attempts int, rest ...llm.Message) session.Turn {
	w.t.Helper()
	m := w.message(chat, question)
	turn := session.Turn{Session: session.KeyOf(at(chat)), Address: at(chat)}
	w.tx(func(tx *store.Tx) error {
		_, err := w.deps.Inbox.Put(tx, m, time.Now())
		return err
	})
	received, err := w.deps.Inbox.Waiting(w.read(), 0)
	w.must(err)
	seq := received[len(received)-1].Seq
	w.tx(func(tx *store.Tx) error {
		first := llm.Message{Role: llm.User, Text: prompt.Envelope(m, time.UTC) + prompt.Escape(m.Text)}
		lease := store.Lease{Owner: "killed", Epoch: 0}
		_, err := session.BeginTurn(tx, &turn, "", lease, time.Now(), first)
		if err == nil {
			_, err = w.deps.Inbox.Claim(tx, seq, turn.ID)
		}
		if err == nil {
			err = session.Append(tx, &turn, time.Now(), rest...)
		}
		return err
	})
	w.exec("UPDATE turns SET attempts = $1 WHERE id = $2", attempts, turn.ID)
	return turn
}

// intent returns an assistant message that calls tools. result returns the result of one of these
// calls.
func intent(tools ...string) llm.Message {
	m := llm.Message{Role: llm.Assistant}
	for i, name := range tools {
		id := fmt.Sprintf("left_%d", i)
		m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: id, Name: name, Arguments: "{}"})
	}
	return m
}

func result(of int, text string) llm.Message {
	return llm.Message{Role: llm.ToolRole, ToolCallID: fmt.Sprintf("left_%d", of), Text: text}
}

// Pitfall: "kill -9 loses all but the last tool round".
func TestResume(t *testing.T) {
	t.Parallel()
	user := func(text string) llm.Message { return llm.Message{Role: llm.User, Text: stamp + text} }
	said := func(text string) llm.Message { return llm.Message{Role: llm.Assistant, Text: text} }
	for _, test := range []struct {
		name string
		left []llm.Message
		ran  []string // tools that must run
		want []string // messages to the model after the question
	}{
		{name: "before the model call"},
		{
			name: "pure without result",
			left: []llm.Message{intent("pure")}, ran: []string{"pure"},
			want: []string{"assistant:  pure({})", "tool: pure again"},
		}, {
			name: "idempotent without result",
			left: []llm.Message{intent("idempotent")}, ran: []string{"idempotent"},
			want: []string{"assistant:  idempotent({})", "tool: idempotent again"},
		}, {
			name: "once without result",
			left: []llm.Message{intent("once")},
			want: []string{"assistant:  once({})", "tool: " + turn.ResultUnknown},
		}, {
			name: "some results of a batch",
			left: []llm.Message{
				intent("once", "pure", "once", "idempotent", "pure"),
				result(4, "five"), result(0, "one"),
			},
			ran: []string{"pure", "idempotent"},
			want: []string{"assistant:  once({}) pure({}) once({}) idempotent({}) pure({})",
				"tool: one", "tool: pure again", "tool: " + turn.ResultUnknown,
				"tool: idempotent again", "tool: five"},
		}, {
			name: "all results",
			left: []llm.Message{intent("once", "pure"), result(0, "one"), result(1, "two")},
			want: []string{"assistant:  once({}) pure({})", "tool: one", "tool: two"},
		}, {
			name: "second round",
			left: []llm.Message{intent("pure"), result(0, "one"), said(""), user("more")},
			want: []string{"assistant:  pure({})", "tool: one", "assistant: ", "user: more"},
		}, {
			name: "tool that is gone",
			left: []llm.Message{intent("removed")},
			want: []string{"assistant:  removed({})", "tool: " + turn.ResultUnknown},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var ran []string
				var tools []tool.Tool
				for _, e := range []tool.Effect{tool.Once, tool.Idempotent, tool.Pure} {
					tools = append(tools, act(e.String(), e, func(context.Context) (string, error) {
						ran = append(ran, e.String())
						return e.String() + " again", nil
					}))
				}
				w.tools(tools...)
				w.leave("a", "hello", 1, test.left...)
				w.model.Queue(llmtest.Say("answer"))
				w.start()
				w.wantQuiet()
				w.wantAsked(1, append([]string{"user: hello"}, test.want...)...)
				w.wantAnswers("a", "answer")
				if !slices.Equal(ran, test.ran) {
					t.Errorf("tools %q ran, want %q", ran, test.ran)
				}
				wantLines(t, "turns", w.column(turnStates), []string{"1 done 1 2"})
			})
		})
	}
}

// A turn that crashes the process each time is given up, and the chat is told.
func TestResumeIsBounded(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("crash", tool.Pure, always("survived")))
		w.leave("a", "hello", turn.MaxAttempts-1, intent("crash"))
		w.leave("b", "hello", turn.MaxAttempts, intent("crash"))
		w.model.Queue(llmtest.Say("at last"), llmtest.Say("next"))
		w.start()
		w.say("b", "again")
		w.wantQuiet()
		w.wantAnswers("a", "at last")
		w.wantAnswers("b", turn.SayGaveUp, "next")
		w.wantTranscript("b", "user: hello", "assistant:  crash({})", "tool: "+turn.ResultFailed,
			"assistant: "+turn.MarkFailed, "user: again", "assistant: next")
	})
}

// A turn of an earlier process is answered before the messages that wait behind it. Its tool
// calls belong to the person who asked.
func TestResumeKeepsOrderAndSender(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var calls []tool.Call
		look := act("look", tool.Pure, nil)
		look.Run = func(_ context.Context, c tool.Call) (tool.Result, error) {
			calls = append(calls, c)
			return tool.Result{Text: "seen"}, nil
		}
		w.tools(look)
		turn := w.leave("a", "first", 1, intent("look"))
		w.say("a", "second")
		w.opts.QueueMode = pool.Followup
		w.model.Queue(llmtest.Say("one"), llmtest.Say("two"))
		w.start()
		w.wantQuiet()
		w.wantAnswers("a", "one", "two")
		if len(calls) != 1 || calls[0].Sender != (bus.Sender{ID: "7", Name: "Ada"}) ||
			calls[0].Role != "owner" || calls[0].Turn != turn.ID || calls[0].Address != at("a") ||
			calls[0].Session.String() != "test/a" || calls[0].ID != "left_0" {
			t.Errorf("the tool was called with %+v", calls)
		}
		if first := w.outbox("a")[0]; first.Stream == "" {
			t.Error("the answer of a resumed turn does not replace the preview that may be there")
		}
	})
}

// A turn that is itself too long for the prompt is resumed together with its question.
func TestResumeOfGiantTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.ContextWindow, w.opts.MaxOutput = 8192, 1024
		var left []llm.Message
		for i := range 12 {
			m := intent("look")
			m.ToolCalls[0].ID = fmt.Sprintf("left_%d", i)
			m.ToolCalls[0].Arguments = fmt.Sprintf(`{"page":%d}`, i)
			left = append(left, m, result(i, strings.Repeat("x", 3000)))
		}
		w.tools(act("look", tool.Pure, always("seen")))
		w.leave("a", "find it", 1, left...)
		w.model.Queue(llmtest.Say("found"))
		w.start()
		w.wantQuiet()
		asked := w.request(1).Messages
		if len(asked) < 2 {
			t.Fatal("the model was asked nothing")
		}
		if got := asked[1].Text; got != stamp+"find it" {
			t.Errorf("the conversation begins with %.60q, want the question", got)
		}
		if got, want := len(asked), 2+len(left); got != want {
			t.Errorf("the model was asked with %d messages, want %d", got, want)
		}
		most := w.d.pool.Config().ContextBudget() * prompt.BytesPerToken
		if size := prompt.TextSize(asked); size > most {
			t.Errorf("a prompt of %d bytes, want %d at most", size, most)
		}
	})
}

// A turn goes on after its own messages, even if another turn of the session has written since.
func TestResumeBehindAnotherTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.leave("a", "first", 1)
		other := w.leave("a", "second", 1)
		w.tx(func(tx *store.Tx) error {
			err := session.EndTurn(tx, &other, session.Done, time.Now(),
				llm.Message{Role: llm.Assistant, Text: "two"})
			return errors.Join(err, w.deps.Inbox.Finish(tx, other.ID))
		})
		w.model.Queue(llmtest.Say("one"))
		w.start()
		w.wantQuiet()
		w.wantAsked(1, "user: second", "assistant: two", "user: first")
		w.wantAnswers("a", "one")
	})
}

// A turn without messages fails once, instead of being resumed forever.
func TestResumeWithoutMessages(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("well"))
		w.start()
		w.say("a", "hello")
		w.must(w.stop())
		lost := w.leave("a", "and?", 1)
		w.exec("DELETE FROM messages WHERE turn = $1", lost.ID)
		w.start()
		w.say("a", "how are you?")
		w.wantQuiet()
		w.wantAnswers("a", "hi", turn.SayBroken, "well")
	})
}

// A turn that was stopped before its worker runs makes no model call.
func TestResumeOfStoppedTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		turn := w.leave("a", "hello", 1)
		stopped := turn
		w.tx(func(tx *store.Tx) error {
			return session.EndTurn(tx, &stopped, session.Stopped, time.Now())
		})
		d := NewDispatcher(w.deps, &w.opts)
		d.pool.ResumeTurn(context.Background(), &turn)
		d.pool.Wait()
		select {
		case err := <-d.pool.Fatal():
			t.Error(err)
		default:
		}
		w.wantAnswers("a")
		if n := len(w.model.Requests()); n != 0 {
			t.Errorf("the model was asked %d times", n)
		}
	})
}

// Pitfall: "SIGTERM loses the messages in flight".
func TestDrainDuringModelCall(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		step := uses("look")
		step.Usage = llm.Usage{Input: 10}
		w.tools(act("look", tool.Once, always("seen")))
		w.model.Queue(step, held(llmtest.Say("never"), make(chan struct{})))
		w.start()
		w.say("a", "hello", "more")
		began := time.Now()
		w.must(w.stop())
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("the turn got %v to end, want the grace of 20 s", took)
		}
		wantLines(t, "turns", w.column(turnStates), []string{"1 running 1 1"})
		w.wantAnswers("a")
		if u := w.info("a").Usage; u.Input < 10 {
			t.Errorf("usage of the session is %+v, want that of the turn so far", u)
		}
		w.model.Queue(llmtest.Say("one"), llmtest.Say("two"))
		w.start()
		w.wantQuiet()
		w.wantAnswers("a", "one", "two")
		if got := w.column(turnStates)[0]; got != "1 done 2 2" {
			t.Errorf("the turn is %q, want it resumed once and done", got)
		}
	})
}

// During the grace period a turn finishes its present step but begins no further one.
func TestDrainWithinGrace(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		answer, call := llmtest.Say("just in time"), uses("look")
		answer.Delay, call.Delay = time.Second, time.Second
		w.tools(act("look", tool.Once, always("seen")))
		w.deps.Model = llmtest.Func("two ways", func(r llm.Request) llmtest.Step {
			if strings.HasSuffix(r.Messages[len(r.Messages)-1].Text, "talk") {
				return answer
			}
			return call
		})
		w.opts.QueueMode = pool.Followup
		w.start()
		w.say("a", "talk", "talk again")
		w.say("b", "look")
		w.must(w.stop())
		w.wantAnswers("a", "just in time")
		w.wantTranscript("b", "user: look", "assistant:  look({})", "tool: seen")
		wantLines(t, "turns", w.column(turnStates), []string{"1 done 1 1", "2 running 1 1"})
		wantLines(t, "inbox", w.column(inboxStates), []string{"1 done", "2 waiting", "3 taken"})
	})
}

// A tool call that is interrupted by the end of the process has no result. After the restart it
// runs again if that is safe.
func TestDrainDuringTool(t *testing.T) {
	t.Parallel()
	for effect, want := range map[tool.Effect]string{
		tool.Pure: "tool: whole", tool.Once: "tool: " + turn.ResultUnknown,
	} {
		t.Run(effect.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				release := make(chan struct{})
				w.tools(act("long", effect, until(release, "whole")))
				w.model.Queue(uses("long", "long"), llmtest.Say("done"))
				w.start()
				w.say("a", "hello")
				w.must(w.stop())
				close(release)
				w.start()
				w.wantQuiet()
				w.wantAsked(2, "user: hello", "assistant:  long({}) long({})", want, want)
				w.wantAnswers("a", "done")
			})
		})
	}
}

func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := NewDispatcher(w.deps, &w.opts).Run(ctx); err != nil {
			t.Errorf("Run with a context that has ended = %v, want nil", err)
		}
	})
}

func TestSecondDispatcherIsRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hi"))
		w.start()
		w.sleep(10 * leaseTerm) // the lease is renewed
		err := NewDispatcher(w.deps, &w.opts).Run(context.Background())
		if !errors.Is(err, store.ErrHeld) {
			t.Errorf("Run of a second dispatcher = %v, want %v", err, store.ErrHeld)
		}
		w.say("a", "hello")
		w.wantAnswers("a", "hi")
		w.must(w.stop())
		w.start() // the lease was given back
		w.must(w.stop())
	})
}

// A dispatcher that loses its lease ends.
func TestLostLease(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		w.exec("UPDATE leases SET epoch = epoch + 1, owner = 'other'")
		w.sleep(leaseTerm)
		if err := <-w.ended; !errors.Is(err, store.ErrFenced) {
			t.Errorf("Run = %v, want %v", err, store.ErrFenced)
		}
		w.cancel = nil
	})
}

// After another process has taken over a turn, the old process writes nothing more for it, in any
// step.
func TestFencing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		steps []llmtest.Step
		last  llmtest.Step // comes after the turn was taken over
	}{
		{"answer", nil, llmtest.Say("stale")},
		{"tool call", nil, uses("look")},
		{"apology", nil, llmtest.Fail(llm.Overloaded)},
		{"answer after a tool", []llmtest.Step{uses("look")}, llmtest.Say("stale")},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var ran atomic.Int64
				w.tools(act("look", tool.Once, func(context.Context) (string, error) {
					ran.Add(1)
					return "seen", nil
				}))
				release := make(chan struct{})
				w.model.Queue(append(test.steps, held(test.last, release))...)
				w.start()
				w.say("a", "hello", "and more")
				w.exec("UPDATE turns SET epoch = 99, owner = 'other'")
				before := ran.Load()
				turns, transcript := w.column(turnStates), w.column(transcriptBodies)
				w.exec("UPDATE inbox SET state = 'taken', turn = 1") // by the other process
				close(release)
				w.sleep(time.Minute)
				wantLines(t, "turns", w.column(turnStates), turns)
				wantLines(t, "transcript", w.column(transcriptBodies), transcript)
				w.wantAnswers("a")
				if ran.Load() != before {
					t.Error("a tool has run for a turn that was taken over")
				}
			})
		})
	}
}

// If the answer can't be written, the turn stays unchanged, and the next process answers.
func TestFinishIsOneTransaction(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say(strings.Repeat("lost ", 5_000)), release),
			llmtest.Say("kept"))
		w.start()
		w.say("a", "hello")
		w.exec("PRAGMA max_page_count = 1") // limits the database to its present size
		close(release)
		if err := <-w.ended; err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("Run = %v, want the error of the store", err)
		}
		w.cancel = nil
		w.wantAnswers("a")
		w.wantTranscript("a", "user: hello")
		w.exec("PRAGMA max_page_count = 1000000")
		w.expireLeases()
		w.start()
		w.wantQuiet()
		w.wantAnswers("a", "kept")
	})
}
