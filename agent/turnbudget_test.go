package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/turn"
)

// costs returns s with a usage of this number of tokens.
func costs(s llmtest.Step, tokens int) llmtest.Step {
	s.Usage = llm.Usage{Input: tokens - 10, Output: 10}
	return s
}

// outcomes returns how many sub-agents have reported, and how many of them report that the budget
// is spent.
func (w *world) outcomes() (all, spent int) {
	w.t.Helper()
	for _, body := range w.column("SELECT body FROM inbox WHERE message LIKE 'outcome:%'") {
		if all++; strings.Contains(body, "the budget is spent") {
			spent++
		}
	}
	return all, spent
}

// tell answers the outcomes of sub-agents in as many turns as needed.
func (w *world) tell() {
	w.t.Helper()
	for range 20 {
		w.sleep(time.Minute)
		if w.count("SELECT count(*) FROM inbox WHERE state IN ('waiting', 'taken')") == 0 {
			return
		}
		w.model.Queue(llmtest.Say("told"))
	}
	w.t.Fatal("the outcomes are not told")
}

// An answer of a server that reports no usage is counted, too: a budget must hold with every
// server.
func TestBudgetWithoutUsage(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.Usage = budget.New(&budget.Options{Day: budget.Limit{Tokens: 8000}})
		w.model.Queue(llmtest.Say(strings.Repeat("word ", 8000)))
		w.start()
		w.say("a", "hello")
		w.sleep(time.Minute)
		w.say("b", "hello")
		w.sleep(time.Minute)
		told := w.outbox("b")
		if last := told[len(told)-1].Text; !strings.Contains(last, "the budget is spent") {
			t.Errorf("another chat is told %.80q", last)
		}
		w.wantQuiet()
	})
}

// The usage of a turn and of its sub-agents adds up to one limit, also after the turn has ended
// and in the next process.
func TestTurnLimitOfAllTogether(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit, refused int
		restart        bool
	}{
		{limit: 32_000, refused: 4},
		{limit: 32_000, refused: 4, restart: true},
		{limit: 60_000, refused: 0, restart: true}, // the limit is high enough
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			inWorld(t, func(w *world) {
				asked, release := make(chan struct{}), make(chan struct{})
				sub := w.spawning(act("look", tool.Pure, until(release, "seen")))
				limit := budget.Options{Turn: budget.Limit{Tokens: test.limit}}
				w.opts.Usage, w.opts.Grace = budget.New(&limit), time.Second
				for range 4 { // at the same time
					sub.Queue(held(costs(uses("look"), 4000), asked))
				}
				w.model.Queue(costs(spawns(false, "1", "2", "3", "4"), 16_000), llmtest.Say("they work"))
				w.start()
				w.say("a", "hello")
				w.wantAnswers("a", "they work")
				if n := len(sub.Requests()); n != 4 {
					t.Fatalf("the sub-agents have asked %d times, want 4", n)
				}
				close(asked)
				w.settle()
				if test.restart {
					w.must(w.stop())
					w.opts.Usage = budget.New(&limit)
					w.start()
				}
				for range 4 - test.refused {
					sub.Queue(llmtest.Say("done"))
				}
				w.model.Queue(llmtest.Say("told"))
				close(release)
				w.tell()
				if all, spent := w.outcomes(); all != 4 || spent != test.refused {
					t.Errorf("%d of %d sub-agents were refused, want %d of 4", spent, all, test.refused)
				}
			})
		})
	}
}

// The turn that reports an outcome has its own limit. The sub-agents that it starts count towards
// the limit of the turn that a person asked for. The next message of a person begins a new limit.
func TestTurnLimitOfAChain(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.opts.QueueMode = pool.Followup // else the turn could read the outcome of its own sub-agent
			sub := w.spawning()
			limit := budget.Options{Turn: budget.Limit{Tokens: 24_000}}
			w.opts.Usage = budget.New(&limit)
			sent, release := make(chan struct{}), make(chan struct{})
			sub.Queue(held(costs(llmtest.Say("one is done"), 5000), sent))
			w.model.Queue(costs(spawns(false, "one"), 18_000), llmtest.Say("sent"),
				held(costs(spawns(false, "two"), 3000), release))
			w.start()
			w.say("a", "hello")
			w.wantAnswers("a", "sent")
			close(sent)
			w.settle()
			if restart { // the call is interrupted and repeated
				w.must(w.stop())
				w.opts.Usage = budget.New(&limit)
				w.model.Queue(costs(spawns(false, "two"), 3000))
			}
			w.model.Queue(llmtest.Say("two is sent"), llmtest.Say("two could not"))
			if restart {
				w.start()
			}
			close(release)
			w.wantQuiet()
			w.wantAnswers("a", "sent", "two is sent", "two could not")
			if all, spent := w.outcomes(); all != 2 || spent != 1 {
				t.Errorf("%d of %d sub-agents were refused, want one of 2", spent, all)
			}

			sub.Queue(llmtest.Say("three is done"))
			w.model.Queue(spawns(false, "three"), llmtest.Say("three is sent"), llmtest.Say("three!"))
			w.say("a", "once more")
			w.wantQuiet()
			if all, spent := w.outcomes(); all != 3 || spent != 1 {
				t.Errorf("%d of %d sub-agents were refused, want one of 3", spent, all)
			}
		})
	}
}

// A sub-agent may use a quarter of the limit for tools that cost money, too.
func TestTurnLimitOfPayingTool(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var refused []error
		paint := act("paint", tool.Once, nil)
		paint.Run = func(ctx context.Context, c tool.Call) (tool.Result, error) {
			err := c.Pay(ctx, "pictures", 0.20)
			refused = append(refused, err)
			return tool.Result{Text: "painted"}, err
		}
		sub := w.spawning(paint)
		w.opts.Usage = budget.New(&budget.Options{Turn: budget.Limit{Dollars: 1}})
		sub.Queue(uses("paint"), uses("paint"), llmtest.Say("done"))
		w.model.Queue(spawns(true, "paint two pictures"), llmtest.Say("told"))
		w.start()
		w.say("a", "hello")
		w.wantAnswers("a", "told")
		if len(refused) != 2 || refused[0] != nil || !errors.Is(refused[1], budget.ErrExceeded) {
			t.Errorf("the calls of the tool end with %v", refused)
		}
	})
}

// A turn that waits for its sub-agents can use only the tokens that they leave.
func TestTurnLimitOfWhoWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		sub := w.spawning()
		w.opts.Usage = budget.New(&budget.Options{Turn: budget.Limit{Tokens: 20_000}})
		sub.Queue(costs(llmtest.Say("it is blue"), 4000))
		w.model.Queue(costs(spawns(true, "look"), 15_000))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", turn.ErrorText(budget.ErrExceeded))
		rows := w.column("SELECT turn || ' ' || tokens FROM usage_turns")
		if want := []string{"1 19000"}; !slices.Equal(rows, want) {
			t.Errorf("counted was %q, want %q", rows, want)
		}
	})
}
