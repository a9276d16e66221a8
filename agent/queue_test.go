package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/store"
)

// Messages that arrive during a tool call are shown to the model together with the call's result.
func TestSteerAfterTools(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.tools(act("look", tool.Pure, until(release, "seen")))
		w.model.Queue(uses("look"), llmtest.Say("both done"))
		w.start()
		w.say("a", "hello", "and more", "and still more")
		close(release)
		w.wantQuiet()
		w.wantAsked(2, "user: hello", "assistant:  look({})", "tool: seen",
			"user: and more\n\nand still more")
		w.wantAnswers("a", "both done")
	})
}

// Pitfall: "a follow-up that arrives before the first answer makes that answer vanish".
func TestSteerBeforeAnswer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("first"), release), llmtest.Say("second"))
		w.start()
		w.say("a", "hello", "and more", "and still more")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", "first", "second")
		w.wantAsked(2, "user: hello", "assistant: first", "user: and more\n\nand still more")
		w.wantTranscript("a", "user: hello", "assistant: first", "user: and more",
			"user: and still more", "assistant: second")
	})
}

// The limits of an answer begin anew with each answer, also if the person always writes before the
// answer is ready.
func TestLimitsOfFollowups(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("look", tool.Pure, always("seen")))
		w.opts.Timeout, w.opts.MaxRounds = 10*time.Minute, 2
		var ready []chan struct{}
		for range 3 {
			release := make(chan struct{})
			w.model.Queue(uses("look"), uses("look"), held(llmtest.Say("done"), release))
			ready = append(ready, release)
		}
		w.start()
		w.say("a", "first")
		for i, release := range ready {
			w.sleep(9 * time.Minute)
			if i+1 < len(ready) {
				w.say("a", "and more")
			}
			close(release)
		}
		w.wantQuiet()
		w.wantAnswers("a", "done", "done", "done")
	})
}

// If a person writes during a batch of tool calls, the calls that have not begun are skipped.
func TestSteerSkipsTools(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		ran := 0
		w.tools(act("first", tool.Once, until(release, "one")),
			act("second", tool.Once, func(context.Context) (string, error) { ran++; return "two", nil }))
		w.model.Queue(uses("first", "second", "second"), llmtest.Say("I see"))
		w.start()
		w.say("a", "hello", "no, wait")
		close(release)
		w.wantQuiet()
		w.wantAsked(2, "user: hello", "assistant:  first({}) second({}) second({})", "tool: one",
			"tool: "+turn.ResultSkipped, "tool: "+turn.ResultSkipped, "user: no, wait")
		if ran != 0 {
			t.Errorf("a tool ran %d times that the person came before", ran)
		}
		w.wantAnswers("a", "I see")
	})
}

func TestFollowup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.tools(act("look", tool.Once, until(release, "seen")))
		w.model.Queue(uses("look", "look"), llmtest.Say("one"), llmtest.Say("two"),
			llmtest.Say("three"))
		w.opts.QueueMode = pool.Followup
		w.start()
		w.say("a", "first", "second", "third")
		close(release)
		w.wantQuiet()
		w.wantAsked(2, "user: first", "assistant:  look({}) look({})", "tool: seen", "tool: seen")
		w.wantAsked(3, "user: first", "assistant:  look({}) look({})", "tool: seen", "tool: seen",
			"assistant: one", "user: second")
		w.wantAnswers("a", "one", "two", "three")
		if n := w.count("SELECT count(*) FROM turns"); n != 3 {
			t.Errorf("%d turns, want one per message", n)
		}
	})
}

// All messages within the quiet period are answered in one turn, with numbers.
func TestCollect(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("all three"), llmtest.Say("and one"))
		w.opts.QueueMode = pool.Collect
		w.start()
		for _, text := range []string{"first", "second\nwith two lines", "third"} {
			w.say("a", text)
			w.sleep(pool.CollectPause - time.Millisecond)
		}
		if n := len(w.model.Requests()); n != 0 {
			t.Fatalf("the model was asked %d times before it was quiet", n)
		}
		w.sleep(time.Millisecond)
		w.wantAsked(1, "user: 1. first\n2. second\nwith two lines\n3. third")
		w.say("a", "alone")
		w.wantQuiet()
		w.wantAsked(2, "user: 1. first\n2. second\nwith two lines\n3. third",
			"assistant: all three", "user: alone")
		w.wantAnswers("a", "all three", "and one")
	})
}

// Messages that arrive during a turn are collected and answered after it. They do not steer it.
func TestCollectDuringTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("one"), release), llmtest.Say("two and three"))
		w.opts.QueueMode = pool.Collect
		w.start()
		w.say("a", "first")
		w.sleep(time.Second)
		w.say("a", "second", "third")
		w.sleep(time.Minute)
		close(release)
		w.wantQuiet()
		w.wantAsked(2, "user: first", "assistant: one", "user: 1. second\n2. third")
		w.wantAnswers("a", "one", "two and three")
	})
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(held(llmtest.Say("never"), make(chan struct{})), llmtest.Say("new answer"))
		w.opts.QueueMode = pool.Interrupt
		w.start()
		w.say("a", "old", "new")
		w.wantQuiet()
		w.wantAnswers("a", "new answer")
		w.wantAsked(2, "user: old", "assistant: "+turn.MarkInterrupted, "user: new")
	})
}

// An interrupted turn starts no further tool.
func TestInterruptDuringTools(t *testing.T) {
	t.Parallel()
	for _, effect := range []tool.Effect{tool.Once, tool.Pure} {
		t.Run(effect.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				const calls = turn.MaxParallel + 3
				var batch []string
				began := make(chan struct{}, calls)
				w.tools(act("wait", effect, func(ctx context.Context) (string, error) {
					began <- struct{}{}
					<-ctx.Done()
					return "", ctx.Err()
				}))
				for range calls {
					batch = append(batch, "wait")
				}
				w.model.Queue(uses(batch...), llmtest.Say("new answer"))
				w.opts.QueueMode = pool.Interrupt
				w.start()
				w.say("a", "old")
				want := len(began)
				w.say("a", "new")
				w.wantQuiet()
				if got := len(began); got != want {
					t.Errorf("%d tools began, want the %d that had before the interruption", got, want)
				}
				w.wantAnswers("a", "new answer")
				asked := lines(w.request(2).Messages[1:])
				if got := slices.Index(asked, "tool: "+turn.ResultStopped); got < 0 {
					t.Errorf("a tool that never began has no result: %q", asked)
				}
			})
		})
	}
}

// A call runs only if there is room for its result, which may have a large image: results that wait
// to be written count as running calls.
func TestResultsWait(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const calls = turn.MaxParallel + 3
		began, write := make(chan struct{}, calls), make(chan struct{})
		read := act("read", tool.Pure, nil)
		read.Run = func(context.Context, tool.Call) (tool.Result, error) {
			began <- struct{}{}
			return tool.Result{Commit: func(*store.Tx) (string, error) {
				<-write
				return "read", nil
			}}, nil
		}
		w.tools(read)
		w.model.Queue(uses(slices.Repeat([]string{"read"}, calls)...), llmtest.Say("done"))
		w.start()
		w.say("a", "go")
		if got := len(began); got != turn.MaxParallel {
			t.Errorf("%d tools ran before the first result was written, want %d", got, turn.MaxParallel)
		}
		close(write)
		w.wantQuiet()
		w.wantAnswers("a", "done")
	})
}

// whichQueue is the answer to /queue.
const whichQueue = "The queue mode is %s. It says what happens to a message that comes while " +
	"I answer:\n\n- steer: I read it at my next step\n- followup: I answer it afterwards\n" +
	"- collect: I answer all that came at once, afterwards\n" +
	"- interrupt: I drop the answer and begin with the new message"

func TestQueueCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const which = whichQueue
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("one"), release), llmtest.Say("two"), llmtest.Say("three"))
		w.start()
		w.say("a", "/queue", "/queue FollowUp", "/queue", "/queue backwards")
		w.say("b", "/queue")
		told := []string{
			strings.Replace(which, "%s", "steer", 1),
			"The queue mode of this conversation is now followup.",
			strings.Replace(which, "%s", "followup", 1),
			"There is no such queue mode. Use `steer`, `followup`, `collect`, `interrupt` or `default`.",
		}
		w.wantAnswers("a", told...)
		w.wantAnswers("b", told[0])

		w.must(w.stop()) // the mode outlives the process
		w.start()
		w.say("a", "first", "second", "third")
		close(release)
		w.wantQuiet()
		w.wantAnswers("a", append(told, "one", "two", "three")...)
		w.wantAsked(2, "user: first", "assistant: one", "user: second")

		w.say("a", "/queue default", "/queue")
		w.wantAnswers("a", append(told, "one", "two", "three",
			"The queue mode of this conversation is up to the configuration again.", told[0])...)
	})
}

// Pitfall: "waiting-queue overflow drops the 11th message, and only the log knows".
func TestWaitingBound(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		full := fmt.Sprintf(pool.SayFull, 2)
		first, second := make(chan struct{}), make(chan struct{})
		w.model.Queue(held(llmtest.Say("1"), first), held(llmtest.Say("2"), second),
			llmtest.Say("3"), llmtest.Say("4"))
		w.opts.QueueMode, w.opts.Waiting = pool.Followup, 2
		w.start()
		w.say("a", "one", "two", "three", "dropped", "dropped", "dropped")
		w.wantAnswers("a", full)
		if n := w.d.Stats().Dropped["test"]; n != 3 {
			t.Errorf("%d messages are counted as dropped, want 3", n)
		}
		close(first)
		w.settle()
		w.say("a", "four", "dropped", "dropped")
		close(second)
		w.wantQuiet()
		w.wantAnswers("a", full, "1", full, "2", "3", "4")
		if n := w.count("SELECT count(*) FROM inbox WHERE state = 'dropped'"); n != 5 {
			t.Errorf("%d messages are marked as dropped, want 5", n)
		}
		wantLines(t, "messages that get no answer", w.outside.dropped, []string{"5", "6", "9"})
	})
}

// Messages that an earlier process has accepted are never dropped because the queue is full.
func TestWaitingBoundAfterRestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode, w.opts.Waiting = pool.Followup, 2
		w.deps.Model = llmtest.Func("echo", echo)
		w.say("a", "one", "two", "three", "four")
		w.start()
		w.wantQuiet()
		w.wantAnswers("a", "re: one", "re: two", "re: three", "re: four")
	})
}

// This also applies if one message of many can't be read.
func TestWaitingBoundWithDamage(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode, w.opts.Waiting = pool.Collect, 2
		w.deps.Model = llmtest.Func("echo", echo)
		w.say("damaged", "x")
		for i := range bus.ReadLimit - 1 { // together with the damaged message, one page
			w.say(fmt.Sprint("other", i), "hello")
		}
		w.say("a", "one", "two", "three", "four")
		w.exec("UPDATE inbox SET body = '{' WHERE chat = 'damaged'")
		w.start()
		w.wantQuiet()
		if n := w.count("SELECT count(*) FROM inbox WHERE state = 'dropped'"); n != 0 {
			t.Errorf("%d messages that were accepted before were dropped", n)
		}
	})
}

// Texts that a person sends in quick succession become one message. Texts of other people are not
// part of it.
func TestDebounce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const pause = 800 * time.Millisecond
		w.opts.Debounce = map[string]time.Duration{"test": pause}
		w.model.Queue(llmtest.Say("both"), llmtest.Say("Bob's"), llmtest.Say("late"))
		w.start()
		bob := w.message("a", "mine")
		bob.Sender.ID, bob.Group = "8", true
		w.say("a", "one")
		w.sleep(pause - time.Millisecond)
		two := w.message("a", "two")
		two.Album = "long text" // it may have further parts
		w.put(two)
		for want := range 2 {
			w.sleep(pause - time.Millisecond)
			if n := len(w.model.Requests()); n != want {
				t.Fatalf("the model was asked %d times within the pause, want %d", n, want)
			}
			if want == 0 { // nothing that Ann writes after this can join what she wrote before
				w.put(bob)
			}
		}
		w.say("a", "/queue followup") // a command does not wait for the pause
		w.sleep(time.Minute)
		w.say("a", "three")
		w.wantQuiet()
		w.wantAsked(1, "user: one\n\ntwo")
		w.wantAsked(2, "user: one\n\ntwo", "assistant: both",
			"user: Ada (owner): mine")
		w.wantAnswers("a", "both", "The queue mode of this conversation is now followup.",
			"Bob's", "late")
	})
}

// If programs post many messages to a busy conversation, only a limited number is held in memory.
// The others stay in the inbox. All are answered later, in order.
func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		first := true
		var mu sync.Mutex
		var order []string
		w.deps.Model = checked{llmtest.Func("model", func(r llm.Request) llmtest.Step {
			mu.Lock()
			defer mu.Unlock()
			if first {
				first = false
				return held(llmtest.Say("hi"), release)
			}
			last := r.Messages[len(r.Messages)-1].Text
			_, rest, _ := strings.Cut(last, "post ")
			n, _, _ := strings.Cut(rest, "\n")
			order = append(order, n)
			return llmtest.Say("ok")
		}), t}
		w.start()
		w.say("a", "hello")
		const posts = pool.MaxOwn + 20
		var list []bus.InboundMessage
		var want []string
		for i := range posts {
			m := w.message("a", fmt.Sprint("post ", i))
			m.Origin = bus.Origin{Kind: bus.Hook, Label: "post"}
			list, want = append(list, m), append(want, fmt.Sprint(i))
		}
		w.put(list...)
		held := len(w.d.pool.Pending(named("test/a")))
		if held != pool.MaxOwn {
			t.Errorf("%d are held in memory, want %d", held, pool.MaxOwn)
		}
		close(release)
		w.wantQuiet()
		wantLines(t, "order", order, want)
	})
}

// The same limit applies to a session whose turn waits for a person. The answer of this person is
// still read.
func TestNotesOfSuspendedSessionAreBounded(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		key := named("test/a").OfHook("post")
		const posts = pool.MaxOwn + 20
		var list []bus.InboundMessage
		var order, want []string
		w.deps.Model = checked{llmtest.Func("model", func(r llm.Request) llmtest.Step {
			last := r.Messages[len(r.Messages)-1].Text
			if _, rest, ok := strings.Cut(last, "post "); ok {
				n, _, _ := strings.Cut(rest, "\n")
				order = append(order, n)
			}
			if strings.Contains(last, "hello") {
				return asksFor("Which?")
			}
			return llmtest.Say("ok")
		}), t}
		w.start()
		hello := w.message("a", "hello")
		hello.Origin = bus.Origin{Kind: bus.Hook, Label: "post", Session: key}
		w.put(hello)
		for i := range posts {
			m := w.message("a", fmt.Sprint("post ", i))
			m.Origin = hello.Origin
			list, want = append(list, m), append(want, fmt.Sprint(i))
		}
		w.put(list...)
		for range 2 { // also after the recovery has compared the memory with the table
			held := len(w.d.pool.Pending(key))
			if held != pool.MaxOwn {
				t.Errorf("%d are held in memory, want %d", held, pool.MaxOwn)
			}
			w.sleep(2 * recoveryInterval)
		}
		w.say("a", "/answer "+w.code()+" red")
		w.sleep(time.Minute)
		w.wantQuiet()
		wantLines(t, "order", order, want)
	})
}

// If people reword a message that still waits, the agent answers the new wording, also if they have
// written something in between. It never acts on the old wording.
func TestEditOfWaitingMessage(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("one"), release), llmtest.Say("two"), llmtest.Say("three"))
		w.opts.QueueMode = pool.Followup
		w.start()
		w.say("a", "first", "order 5", "thanks")
		edit := w.message("a", "order 50")
		edit.Edits = "2"
		w.put(edit)
		close(release)
		w.wantQuiet()
		w.wantAsked(2, "user: first", "assistant: one", "user: order 50")
		w.wantAsked(3, "user: first", "assistant: one", "user: order 50", "assistant: two",
			"user: thanks")
		w.wantAnswers("a", "one", "two", "three")
	})
}

// The same holds for the new wording of a message that was not for the agent, or is answered.
func TestEditOfWaitingEdit(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("one"), release), llmtest.Say("two"), llmtest.Say("three"))
		w.opts.QueueMode = pool.Followup
		w.start()
		w.say("a", "first")
		for i, text := range []string{"order 5", "thanks", "order 50"} {
			m := w.message("a", text)
			if i != 1 {
				m.Edits = "0"
			}
			w.put(m)
		}
		close(release)
		w.wantQuiet()
		w.wantAsked(2, "user: first", "assistant: one",
			"user: [new wording of an earlier message] order 50")
		w.wantAnswers("a", "one", "two", "three")
	})
}

// A message instead of an approval interrupts the turn that waits for it, also after a restart.
func TestInterruptQuestion(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.opts.QueueMode = pool.Interrupt
			w.tools(counting("exec", tool.Once, new(int)))
			w.opts.Rules = askFirst("exec")
			w.model.Queue(uses("exec"), llmtest.Say("new answer"))
			w.start()
			w.say("a", "old")
			if restart {
				w.restart()
			}
			m := w.message("a", "new")
			m.Role = bus.Owner
			w.put(m)
			w.wantQuiet()
			out := w.outbox("a")
			if last := out[len(out)-1]; len(out) != 2 || !slices.Equal(last.Answers, []string{"1", "2"}) {
				t.Errorf("%+v were sent, want the question and one answer for both messages", out)
			}
			asked := lines(w.request(2).Messages[1:])
			if got := asked[len(asked)-2]; got != "assistant: "+turn.MarkInterrupted {
				t.Errorf("the model reads %q before the message, want the interruption", got)
			}
		})
	}
}
