package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/store"
)

// After a blank answer the model is asked again without a note to the person, then again without
// tools. If the answer is still blank, the person gets an apology.
func TestBlankAnswers(t *testing.T) {
	t.Parallel()
	blank := llmtest.Say(" \n")
	for _, test := range []struct {
		name   string
		steps  []llmtest.Step
		want   string
		second []string // texts to the model after the question in the last request
	}{
		{"once", []llmtest.Step{blank, llmtest.Say("hi")}, "hi", nil},
		{"twice", []llmtest.Step{blank, blank, llmtest.Say("hi")}, "hi", []string{turn.AskAnswer}},
		{"always", []llmtest.Step{blank, blank, blank}, turn.SayBlank, []string{turn.AskAnswer}},
		{"tools instead", []llmtest.Step{blank, blank, uses("look")}, turn.SayBlank,
			[]string{turn.AskAnswer}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(act("look", tool.Pure, always("seen")))
				w.model.Queue(test.steps...)
				w.start()
				w.say("a", "hello")
				w.wantQuiet()
				w.wantAnswers("a", test.want)
				want := strings.Join(append([]string{"user: hello"}, test.second...), "\n\n")
				w.wantAsked(len(test.steps), want)
				for i, r := range w.model.Requests() {
					if free := len(r.Tools) > 0; free != (i < 2) {
						t.Errorf("request %d offers tools: %v, want %v", i+1, free, i < 2)
					}
				}
			})
		})
	}
}

// An answer that reaches the limit of its length is continued in the same message, at most three
// times.
func TestContinuation(t *testing.T) {
	t.Parallel()
	cut := func(text string) llmtest.Step {
		s := llmtest.Say(text)
		s.Finish = llm.FinishLength
		return s
	}
	inWorld(t, func(w *world) {
		w.model.Queue(cut("one "), cut("two "), cut("three "), cut("four "), llmtest.Say("next"))
		w.start()
		w.say("a", "hello")
		w.sleep(time.Minute)
		w.wantAnswers("a", "one two three four ")
		w.wantAsked(4, "user: hello", "assistant: one two three ", "user: "+turn.AskContinue)
		w.say("a", "again")
		w.wantQuiet()
		w.wantAsked(5, "user: hello", "assistant: one two three four ", "user: again")
	})
}

// The transcript has the text before a cut-off tool call in front of that call.
func TestContinuationWithTool(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		cut := llmtest.Say("I look")
		cut.Finish = llm.FinishLength
		call := uses("look")
		call.Text = []string{" it up."}
		w.tools(act("look", tool.Pure, always("seen")))
		w.model.Queue(cut, call, llmtest.Say("found"))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAsked(3, "user: hello", "assistant: I look it up. look({})", "tool: seen")
		w.wantAnswers("a", "found")
	})
}

// At the limit of rounds the model must sum up and gets no tools.
func TestRoundLimit(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("look", tool.Pure, always("seen")))
		w.model.Queue(uses("look"), uses("look"), llmtest.Say("so far"))
		w.opts.MaxRounds = 2
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", "so far")
		w.wantAsked(3, "user: hello", "assistant:  look({})", "tool: seen",
			"assistant:  look({})", "tool: seen", "user: "+turn.AskSumUp)
		if n := len(w.request(3).Tools); n != 0 {
			t.Errorf("the last request offers %d tools", n)
		}
	})
}

// People get one plain sentence for each kind of error, and never the text of the error.
func TestModelErrors(t *testing.T) {
	t.Parallel()
	const later, unreachable = "is overloaded right now", "cannot be reached right now"
	for kind, want := range map[llm.Kind]string{
		llm.RateLimited: later, llm.Overloaded: later,
		llm.Unavailable: unreachable, llm.TimedOut: unreachable,
		llm.Unauthorized:   "refuses the gateway's key",
		llm.OutOfQuota:     "has no credit left",
		llm.ContextTooLong: "has become too long",
		llm.ContentRefused: "refuses to answer this",
		llm.Forbidden:      "does not let the gateway's key do this",
		llm.NotFound:       "does not know the configured model",
		llm.BadRequest:     "Start a new one with /new. If that does not help, the person who runs me",
		"":                 turn.SayFailed, // not an *llm.Error
	} {
		t.Run(string(kind), func(t *testing.T) {
			inWorld(t, func(w *world) {
				const secret = "sk-1234567890"
				var err error = &llm.Error{Kind: kind, Err: errors.New("https://api/?key=" + secret)}
				if kind == "" {
					err = errors.New("key " + secret)
				}
				fail := llmtest.Step{Err: err}
				w.model.Queue(fail)
				if kind == llm.ContextTooLong {
					w.model.Queue(fail) // the turn tries once more
				}
				w.model.Queue(llmtest.Say("better"))
				w.start()
				w.say("a", "hello")
				told := w.outbox("a")
				if len(told) != 1 || !strings.Contains(told[0].Text, want) ||
					strings.Contains(told[0].Text, secret) || strings.Contains(told[0].Text, "llm:") {
					t.Fatalf("chat was told %+v, want one sentence with %q", told, want)
				}
				w.say("a", "again")
				w.wantQuiet()
				w.wantTranscript("a", "user: hello", "assistant: "+turn.MarkFailed, "user: again",
					"assistant: better")
			})
		})
	}
}

// If an error follows a part of the answer, the part that was shown stays.
func TestModelErrorAfterText(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		cut := llmtest.Say("The beginning")
		cut.Finish = llm.FinishLength
		w.model.Queue(cut, llmtest.Fail(llm.Overloaded))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", "The beginning\n\n"+turn.ErrorText(&llm.Error{Kind: llm.Overloaded}))
	})
}

// A conversation that is too long for the model is shortened so that it begins with a message of
// a person.
func TestContextTooLong(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Followup
		for i := range 4 {
			w.model.Queue(llmtest.Say(fmt.Sprint("answer ", i)))
		}
		w.model.Queue(llmtest.Fail(llm.ContextTooLong), llmtest.Say("after all"),
			llmtest.Say("and on"))
		w.start()
		w.say("a", "0", "1", "2", "3", "too much", "next")
		w.wantQuiet()
		w.wantAsked(6, "user: 2", "assistant: answer 2", "user: 3", "assistant: answer 3",
			"user: too much")
		w.wantAsked(7, "user: 2", "assistant: answer 2", "user: 3", "assistant: answer 3",
			"user: too much", "assistant: after all", "user: next")
		told := w.outbox("a")
		if got := told[4].Text; got != "after all" {
			t.Errorf("the long conversation was answered with %q", got)
		}
	})
}

// If there are no older messages to leave out, the results of the turn's tools are cut.
func TestContextTooLongByResults(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("look", tool.Pure, always(strings.Repeat("x", 5000))))
		w.model.Queue(uses("look"), llmtest.Fail(llm.ContextTooLong), llmtest.Say("after all"))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		got := w.request(3).Messages
		if len(got) != 4 || len(got[3].Text) > prompt.ShrunkResult || got[1].Text != stamp+"hello" {
			t.Errorf("the model was asked again with %d messages, a result of %d bytes",
				len(got), len(got[3].Text))
		}
		w.wantAnswers("a", "after all")
	})
}

// The time limit of a turn ends a running model call or tool. No further tool begins.
func TestTurnTimeout(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"model", "tool"} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				never := make(chan struct{})
				w.tools(act("hangs", tool.Once, until(never, "")))
				step := held(llmtest.Say("unused"), never)
				if name == "tool" {
					step = uses("hangs", "hangs")
				}
				w.model.Queue(step)
				w.opts.Timeout, w.opts.ToolTimeout = time.Minute, time.Hour
				w.start()
				w.say("a", "hello")
				w.sleep(time.Minute - time.Second)
				w.wantAnswers("a")
				w.sleep(time.Second)
				w.wantAnswers("a", turn.SayTimeout)
				if name == "tool" {
					w.wantTranscript("a", "user: hello", "assistant:  hangs({}) hangs({})",
						"tool: Error: context deadline exceeded\nFind out what went wrong and try another way.",
						"tool: "+turn.ResultFailed, "assistant: "+turn.MarkFailed)
				}
			})
		})
	}
}

// Messages that arrive during a turn that times out are not lost.
func TestTurnTimeoutLeavesNews(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("hangs", tool.Once, until(make(chan struct{}), "")))
		w.model.Queue(uses("hangs"), llmtest.Say("here I am"))
		w.opts.Timeout, w.opts.ToolTimeout = time.Minute, time.Hour
		w.start()
		w.say("a", "hello", "still there?")
		w.sleep(2 * time.Minute)
		w.wantQuiet()
		w.wantAnswers("a", turn.SayTimeout, "here I am")
	})
}

// The time limit of a turn does not run while the turn waits for a slot. This wait has its own,
// longer limit. A turn that reaches that limit does not take a slot.
func TestTurnTimeoutWithoutSlot(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("late"), llmtest.Say("fine"))
		w.opts.Timeout, w.opts.Slots = time.Minute, 1
		w.start()
		w.d.env.Calls.Slots <- struct{}{} // another conversation has the slot
		w.say("a", "hello")
		w.sleep(turn.LongestWaits*time.Minute - time.Second)
		w.wantAnswers("a")
		<-w.d.env.Calls.Slots
		w.settle()
		w.wantAnswers("a", "late")
		w.d.env.Calls.Slots <- struct{}{}
		w.say("a", "hello")
		w.sleep(turn.LongestWaits * time.Minute)
		w.wantAnswers("a", "late", turn.SayBusy)
		<-w.d.env.Calls.Slots
		w.say("a", "again")
		w.wantQuiet()
		w.wantAnswers("a", "late", turn.SayBusy, "fine")
	})
}

// If many people write at the same time, each gets an answer. The number of sessions that work at
// the same time is limited.
func TestBurst(t *testing.T) {
	inWorld(t, func(w *world) {
		const people = 150
		w.opts.Slots, w.opts.Timeout = 2, 5*time.Minute
		w.deps.Model = checked{llmtest.Func("model", func(llm.Request) llmtest.Step {
			return llmtest.Step{Delay: time.Minute, Text: []string{"hi"}}
		}), t}
		var list []bus.InboundMessage
		for i := range people {
			list = append(list, w.message(fmt.Sprint(i), "hello"))
		}
		w.start()
		w.put(list...)
		running := "SELECT count(*) FROM turns WHERE state = 'running'"
		if n := w.count(running); n != turn.SessionsPerSlot*w.opts.Slots {
			t.Errorf("%d turns have begun, want %d", n, turn.SessionsPerSlot*w.opts.Slots)
		}
		w.must(w.stop())
		w.start()
		if n := w.count(running); n != turn.SessionsPerSlot*w.opts.Slots {
			t.Errorf("%d turns have begun after another start, want %d", n,
				turn.SessionsPerSlot*w.opts.Slots)
		}
		w.sleep(people / 2 * time.Minute)
		w.sleep(time.Minute)
		w.lived()
		told := w.column("SELECT body FROM outbox WHERE body LIKE '%\"text\":\"hi\"%'")
		if n := w.count("SELECT count(*) FROM outbox"); n != people || len(told) != people {
			t.Errorf("%d messages to people, %d of them answers; want %d", n, len(told), people)
		}
	})
}

// A panicking is a model that panics.
type panicking struct{}

func (panicking) Stream(context.Context, llm.Request) iter.Seq2[llm.Event, error] {
	return func(func(llm.Event, error) bool) { panic("a bug in a provider") }
}

// Pitfall: "one unexpected panic ends delivery for all".
func TestPanicInTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.deps.Model = byChat{"bad": panicking{}, "": w.model}
		w.model.Queue(llmtest.Say("fine"))
		w.start()
		w.say("a", "bad", "bad again")
		w.say("b", "good")
		w.wantQuiet()
		w.wantAnswers("a", turn.SayPanic, turn.SayPanic)
		w.wantAnswers("b", "fine")
		if n := w.d.env.Counters.Panics.Load(); n != 2 {
			t.Errorf("%d panics are counted, want 2", n)
		}
		w.wantTranscript("a", "user: bad", "assistant: "+turn.MarkFailed,
			"user: bad again", "assistant: "+turn.MarkFailed)
	})
}

// A panic before the turn begins is reported as well, and the message is not tried again and
// again.
func TestPanicBeforeTurn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Location = nil
		w.start()
		w.d.env.Location = nil // makes the envelope panic
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", turn.SayPanic)
	})
}

// byChat is a model that chooses another model by a word in the message. The model under "" gets
// all other messages.
type byChat map[string]llm.Model

func (m byChat) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	last := r.Messages[len(r.Messages)-1].Text
	for word, model := range m {
		if word != "" && strings.Contains(last, word) {
			return model.Stream(ctx, r)
		}
	}
	return m[""].Stream(ctx, r)
}

// spent returns the stored usage, as "kind key calls input output".
func (w *world) spent() []string {
	return w.column("SELECT kind || ' ' || key || ' ' || calls || ' ' || input || ' ' || output " +
		"FROM usage ORDER BY kind, key")
}

// Pitfall: "background work had no budget". Each model call needs budget and is counted.
func TestBudget(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		opts budget.Options
	}{
		{"turn", budget.Options{Turn: budget.Limit{Tokens: 1700}}},
		{"session", budget.Options{Session: budget.Limit{Tokens: 1700}}},
		{"day", budget.Options{Day: budget.Limit{Tokens: 1700}}},
		{"person", budget.Options{Person: budget.Limit{Tokens: 1700}}},
		{"dollars", budget.Options{Day: budget.Limit{Dollars: 17},
			Price: func(_ string, u llm.Usage) float64 { return float64(u.Input+u.Output) / 100 }}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				step := uses("look")
				step.Usage = llm.Usage{Input: 600, Output: 10}
				w.tools(act("look", tool.Pure, always("seen")))
				w.model.Queue(step)
				w.opts.Usage = budget.New(&test.opts)
				w.start()
				m := w.message("a", "hello")
				m.Person = 5
				w.put(m)
				w.wantQuiet()
				w.wantAnswers("a", turn.ErrorText(budget.ErrExceeded))
				if strings.Contains(turn.ErrorText(budget.ErrExceeded), turn.SayFailed) {
					t.Error("a spent budget is told like any failure")
				}
				wantLines(t, "spent", w.spent(), []string{"day  1 600 10", "model scripted 1 600 10",
					"person 5 1 600 10", "session test/a 1 600 10"})
				if u := w.info("a").Usage; u != step.Usage {
					t.Errorf("usage of the session is %+v, want %+v", u, step.Usage)
				}
			})
		})
	}
}

// A sender who is not a known person also has the budget of a person. The usage of others does
// not count towards it, and /forget does not reset it.
func TestBudgetOfSenders(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Usage = budget.New(&budget.Options{Person: budget.Limit{Tokens: 1700}})
		step := llmtest.Say("done")
		step.Usage = llm.Usage{Input: 900, Output: 10}
		w.model.Queue(step)
		w.start()
		say := func(sender, text string) {
			m := w.message(sender, text)
			m.Sender.ID, m.Role = sender, bus.User
			w.put(m)
			w.wantQuiet()
		}
		say("8", "hello")
		say("8", "once more")
		w.wantAnswers("8", "done", turn.ErrorText(budget.ErrExceeded))
		w.model.Queue(step)
		say("9", "hello")
		w.wantAnswers("9", "done")
		say("8", "/forget me now")
		w.sleep(time.Minute)
		say("8", "hello again")
		out := w.outbox("8")
		if got := out[len(out)-1].Text; got != turn.ErrorText(budget.ErrExceeded) {
			t.Errorf("after /forget they are answered %q", got)
		}
	})
}

// Calls that run at the same time can't exceed a limit together.
func TestBudgetOfManyAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Usage = budget.New(&budget.Options{Day: budget.Limit{Tokens: 3 * 1600}})
		release := make(chan struct{})
		for range 3 {
			step := held(llmtest.Say("done"), release)
			step.Usage = llm.Usage{Input: 600, Output: 10}
			w.model.Queue(step)
		}
		w.start()
		for i := range 10 {
			w.say(fmt.Sprint(i), "hello")
		}
		refused := 0
		for i := range 10 {
			for _, m := range w.outbox(fmt.Sprint(i)) {
				if m.Text == turn.ErrorText(budget.ErrExceeded) {
					refused++
				}
			}
		}
		if n := w.model.Running(); n != 3 || refused != 7 {
			t.Errorf("%d calls are under way and %d refused, want 3 and 7", n, refused)
		}
		close(release)
		w.wantQuiet()
	})
}

// The owner is told once when a limit is near.
func TestBudgetIsNear(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.outside.owners = func(store.Queryer) ([]bus.Address, error) {
			return []bus.Address{at("owner")}, nil
		}
		w.opts.Usage = budget.New(&budget.Options{Day: budget.Limit{Tokens: 10_000}})
		for range 3 {
			step := llmtest.Say("done")
			step.Usage = llm.Usage{Input: 3_990, Output: 10}
			w.model.Queue(step)
		}
		w.start()
		w.say("a", "one")
		w.wantAnswers("owner")
		w.say("a", "two")
		w.wantAnswers("owner", "Today's budget is used up to 80 %: 8000 of 10000 tokens, $0.0000. "+
			"Beyond it I make no model calls; `[budget]` in the configuration sets it.")
		w.say("a", "three")
		w.say("a", "four")
		if n := len(w.outbox("owner")); n != 1 {
			t.Errorf("the owner was told %d times, want once", n)
		}
		w.wantAnswers("a", "done", "done", "done", turn.ErrorText(budget.ErrExceeded))
		w.wantQuiet()
	})
}

// A call that is interrupted counts by its length. Otherwise people could use the model for free
// by stopping it.
func TestBrokenCallsCount(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		long := llmtest.Say(strings.Repeat("word ", 300))
		long.Between = time.Second
		w.model.Queue(long, llmtest.Fail(llm.RateLimited))
		w.opts.ModelID = "clever"
		w.start()
		w.say("a", "hello")
		w.sleep(time.Minute)
		w.say("a", "/stop")
		w.settle()
		got := w.info("a").Usage
		if got.Input < 100 || got.Output < 60 {
			t.Errorf("usage is %+v, want about that of the prompt and 60 words", got)
		}
		counted := fmt.Sprintf("1 %d %d", got.Input, got.Output)
		want := []string{"day  " + counted, "model clever " + counted,
			"person sender-2efdfec59a3a1883 " + counted, "session test/a " + counted}
		wantLines(t, "spent", w.spent(), want)
		w.say("a", "refused at once")
		w.wantQuiet()
		wantLines(t, "spent after a refusal", w.spent(), want)
	})
}

// The cost of a voice message depends on the length of its packets or on its size, and not on the
// length that the sender states.
func TestCostOfSpeech(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		files := w.withFiles().files
		files["long.ogg"] = strings.Repeat("la ", 1<<18)
		page := "OggS" + strings.Repeat("\x00", 22)
		files["slow.ogg"] = page + "\x02\x08\x08OpusHeadOpusTags" + strings.Repeat( // 495 seconds
			page+"\xfa"+strings.Repeat("\x01", 250)+strings.Repeat("\x18", 250), 33)
		w.opts.SpeechCost = 1
		w.start()
		for _, v := range []bus.Attachment{{Seconds: 1, Ref: "long.ogg"}, {Seconds: 30, Ref: "v.ogg"},
			{Seconds: 1, Ref: "slow.ogg"}} {
			v.Kind, v.Type = bus.Voice, "audio/ogg"
			w.model.Queue(llmtest.Say("fine"))
			w.put(carrying(w.message("a", ""), v))
			w.wantQuiet()
		}
		wantLines(t, "cost", w.column("SELECT CAST(cost AS INTEGER) FROM usage "+
			"WHERE kind = 'model' AND key = 'transcription'"), []string{"717"}) // 768 KiB / 4 KiB + 30 + 495
	})
}
