package agent

import (
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
	"gateway/bus"
	"gateway/store"
)

// inGroup returns a message of a person in the group "g".
func (w *world) inGroup(sender, text string) bus.InboundMessage {
	m := w.message("g", text)
	m.Group, m.Sender, m.Role = true, bus.Sender{ID: sender, Name: "P" + sender}, bus.Guest
	return m
}

// Each person in a group who has asked gets an answer, in the order of the questions. A second
// message of the same person gets its own answer if others have written in between.
func TestGroupAnswersEach(t *testing.T) {
	for _, mode := range []pool.Mode{pool.Steer, pool.Followup, pool.Collect, pool.Interrupt} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = mode
				release := make(chan struct{})
				w.model.Queue(held(llmtest.Say("to a"), release), llmtest.Say("to b"),
					llmtest.Say("to c"), llmtest.Say("to a again"))
				w.start()
				w.put(w.inGroup("a", "one"))
				w.sleep(time.Minute)
				for _, sender := range []string{"b", "c", "a"} {
					w.put(w.inGroup(sender, "me too"))
				}
				close(release)
				w.sleep(time.Minute)
				var got []string
				for _, m := range w.outbox("g") {
					got = append(got, fmt.Sprintf("%s replies to %s %v", m.Text, m.ReplyTo, m.Answers))
				}
				want := []string{"to a replies to 1 [1]", "to b replies to 2 [2]",
					"to c replies to 3 [3]", "to a again replies to 4 [4]"}
				if !slices.Equal(got, want) {
					t.Errorf("the group reads %q, want %q", got, want)
				}
			})
		})
	}
}

// A person adds a question to the one that is being answered, and the gateway restarts. The answer
// to the addition quotes it, as it would without the restart.
func TestGroupQuotesAdditionAfterRestart(t *testing.T) {
	for name, first := range map[string]llmtest.Step{
		"between tools": uses("look"), "after an answer": llmtest.Say("to the first"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(act("look", tool.Pure, always("seen")))
				release := make(chan struct{})
				w.model.Queue(held(first, release), held(llmtest.Say("never"), make(chan struct{})))
				w.start()
				w.put(w.inGroup("a", "one"))
				w.put(w.inGroup("a", "two"))
				close(release)
				w.settle()
				w.model.Queue(llmtest.Say("to the second"))
				w.restart()
				list := w.outbox("g")
				last := list[len(list)-1]
				if last.Text != "to the second" || last.ReplyTo != "2" {
					t.Errorf("%q quotes %q, want the second message", last.Text, last.ReplyTo)
				}
			})
		})
	}
}

// The cost of an answer in a group is charged to the person who asked, even if others have asked
// in the meantime.
func TestGroupBillsWhoHasAsked(t *testing.T) {
	for _, mode := range []pool.Mode{pool.Steer, pool.Followup, pool.Collect} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = mode
				w.opts.Usage = budget.New(&budget.Options{Person: budget.Limit{Tokens: 1700}})
				release := make(chan struct{})
				steps := []llmtest.Step{held(llmtest.Say("to a"), release), llmtest.Say("to b")}
				for i := range steps {
					steps[i].Usage = llm.Usage{Input: 900, Output: 10}
				}
				w.model.Queue(steps...)
				w.start()
				ask := func(person int64, sender string) {
					m := w.inGroup(sender, "hello")
					m.Person, m.Role = person, bus.User
					w.put(m)
				}
				ask(1, "a")
				w.sleep(time.Minute)
				ask(2, "b")
				close(release)
				w.sleep(time.Minute)
				ask(1, "a") // has spent the budget of a person
				w.sleep(time.Minute)
				ask(2, "b")
				w.sleep(time.Minute)
				var got []string
				for _, m := range w.outbox("g") {
					got = append(got, m.Text)
				}
				spent := turn.ErrorText(budget.ErrExceeded)
				if want := []string{"to a", "to b", spent, spent}; !slices.Equal(got, want) {
					t.Errorf("the group reads %q, want %q", got, want)
				}
			})
		})
	}
}

// A person's additions to their own question steer its turn. Messages to others appear in the
// prompt in the order in which they were written.
func TestGroupContextBetween(t *testing.T) {
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("first"), release), llmtest.Say("second"))
		w.start()
		overhear := func(text string) {
			w.tx(func(tx *store.Tx) error {
				_, err := w.deps.Inbox.PutAmbient(tx, w.inGroup("b", text), time.Now())
				return err
			})
		}
		w.put(w.inGroup("a", "one"))
		overhear("zero")
		w.put(w.inGroup("a", "two"))
		overhear("between")
		w.put(w.inGroup("a", "three"))
		overhear("after")
		close(release)
		w.wantQuiet()
		w.wantAnswers("g", "first", "second")
		asked := w.model.Requests()[1].Messages
		var text strings.Builder
		for _, m := range asked {
			text.WriteString(m.Text + "\n")
		}
		last := 0
		for _, want := range []string{"one", "first", "zero", "two", "between", "three"} {
			i := strings.Index(text.String()[last:], want)
			if i < 0 {
				t.Fatalf("the model is asked %q, want %q after %q", text.String(), want,
					text.String()[:last])
			}
			last += i + len(want)
		}
		if strings.Contains(text.String(), "after") {
			t.Errorf("the model is asked %q, with what was said after the question", text.String())
		}
	})
}
