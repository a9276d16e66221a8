package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/bus"
	"gateway/store"
)

// forgets makes person 5 known until they are forgotten. The result tells whether they are.
// Afterwards the sender has the number now, or is a stranger if now is -1.
func (w *world) forgets(now int64) *atomic.Bool {
	forgotten := new(atomic.Bool) // atomic: the command sets it while the dispatcher reads it
	w.outside.known = func(_ store.Queryer, id int64) (bool, error) {
		return id != 5 || !forgotten.Load(), nil
	}
	w.outside.forget = func(*store.Tx, int64, []bus.Address) error {
		forgotten.Store(true)
		return nil
	}
	w.outside.writes = func(m *bus.InboundMessage) bool {
		if !forgotten.Load() {
			return true
		}
		if m.Sender.ID == "7" {
			m.Person, m.Role = max(now, 0), bus.User
		}
		return now >= 0
	}
	return forgotten
}

// wantUnmarked checks that the messages with these ids, and no others, have lost the reaction that
// announces an answer.
func (w *world) wantUnmarked(ids ...string) {
	w.t.Helper()
	wantLines(w.t, "messages that get no answer", w.outside.dropped, ids)
}

// A person writes in another chat while the gateway forgets them. The message gets the number
// that its sender has afterwards: a new one or none. The gateway does not answer a stranger.
func TestWrittenWhileForgotten(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		scope bus.SessionScope
		now   int64 // number of the sender afterwards; -1: a stranger
		want  []string
	}{
		{"without a number", bus.PerPerson, 0, []string{"test/b of chat-test+b"}},
		{"new", bus.PerPerson, 6, []string{"@person-6 of person-6", "test/b of person-6"}},
		{"stranger", bus.PerPerson, -1, nil},
		{"new, each chat by itself", bus.PerChat, 6, []string{"test/b of person-6"}},
		{"stranger, each chat by itself", bus.PerChat, -1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.deps.Inbox.SetScopes(map[string]bus.SessionScope{"test": test.scope})
				w.forgets(test.now)
				release := make(chan struct{})
				w.model.Queue(llmtest.Say("hi"), held(llmtest.Say("never"), release))
				w.start()
				w.tells(5, "a", "hello")
				w.tells(5, "b", "hello") // its turn is held back
				if test.now >= 0 {
					w.model.Queue(held(llmtest.Say("who?"), make(chan struct{})), llmtest.Say("who?"))
				}
				w.put(person(w.message("a", "/forget me now"), 5), person(w.message("b", "once more"), 5))
				close(release)
				w.sleep(recoveryInterval)
				w.restart() // the next process has the same result
				w.wantQuiet()
				wantLines(t, "sessions", w.column("SELECT key || ' of ' || scope FROM sessions"), test.want)
				if n := w.count(`SELECT count(*) FROM inbox WHERE body LIKE '%once more%'
					AND (person = 5 OR body LIKE '%"person":5%')`); n != 0 {
					t.Error("the message still has the old number, or is stored for a stranger")
				}
				unmarked := []string{"2"} // its turn has ended without an answer
				if test.now < 0 {
					unmarked = append(unmarked, "4")
				}
				w.wantUnmarked(unmarked...)
			})
		})
	}
}

// A message waits in a group for the answer to an earlier one while its sender is forgotten. Its
// turn belongs to the number that the sender has afterwards. Nothing is stored under the old
// number any more.
func TestWaitsInGroupWhileForgotten(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"7", "8"} { // the same sender, or another one
		for name, now := range map[string]int64{"without a number": 0, "new": 6, "stranger": -1} {
			t.Run(name+" after "+first, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.forgets(now)
					w.opts.Usage = budget.New(&budget.Options{})
					release := make(chan struct{})
					w.model.Queue(held(llmtest.Say("first"), release))
					w.start()
					w.put(w.inGroup(first, "hello"))
					w.put(person(w.inGroup("7", "once more"), 5))
					w.tells(5, "a", "/forget me now")
					want := []string{"first"}
					if now >= 0 {
						second := llmtest.Say("second")
						second.Usage = llm.Usage{Input: 100, Output: 10}
						w.model.Queue(second)
						want = append(want, "second")
					}
					close(release)
					w.sleep(recoveryInterval)
					w.wantQuiet()
					w.wantAnswers("g", want...)
					wantLines(t, "senders of answered messages",
						w.column(`SELECT person || '' FROM inbox WHERE body LIKE '%once more%'
							AND body NOT LIKE '%"person":5%' AND state = 'done'`),
						slices.Repeat([]string{fmt.Sprint(now)}, len(want)-1))
					if n := w.count("SELECT count(*) FROM usage WHERE kind = 'person' AND key = '5'"); n != 0 {
						t.Error("usage is counted for a person who was forgotten")
					}
					var unmarked []string
					if now < 0 {
						unmarked = []string{"2"}
					}
					w.wantUnmarked(unmarked...)
				})
			})
		}
	}
}

// A person is forgotten while a turn answers them in a group. The turn goes on. Its usage counts
// for who they are afterwards, and not for the number that was forgotten.
func TestAnsweredInGroupWhileForgotten(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]int64{"without a number": 0, "new": 6, "stranger": -1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.forgets(now)
				w.opts.Usage = budget.New(&budget.Options{})
				w.tools(act("look", tool.Pure, always("seen")))
				release := make(chan struct{})
				round, answer := uses("look"), llmtest.Say("done")
				round.Usage = llm.Usage{Input: 100, Output: 10}
				answer.Usage = llm.Usage{Input: 200, Output: 20}
				w.model.Queue(held(round, release), answer)
				w.start()
				w.put(person(w.inGroup("7", "hello"), 5))
				w.tells(5, "a", "/forget me now")
				close(release)
				w.wantQuiet()
				w.wantAnswers("g", "done")
				payers := w.column("SELECT key FROM usage WHERE kind = 'person'")
				if len(payers) != 1 || (payers[0] == "6") != (now == 6) ||
					strings.HasPrefix(payers[0], "sender-") != (now <= 0) {
					t.Errorf("the usage counts for %q", payers)
				}
				if n := w.count("SELECT sum(input + output) FROM usage WHERE kind = 'person'"); n != 330 {
					t.Errorf("%d tokens are counted, want 330", n)
				}
			})
		})
	}
}

// A person is forgotten at the moment when their message answers a question. The message then
// belongs to the number that the sender has afterwards.
func TestAnswersWhileForgotten(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		forgotten := w.forgets(6)
		known := w.outside.known
		w.outside.known = func(q store.Queryer, id int64) (bool, error) {
			if _, claims := q.(*store.Tx); claims && w.sent == 2 {
				forgotten.Store(true) // after the dispatcher has handed the message out
			}
			return known(q, id)
		}
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), llmtest.Say("painted"))
		w.start()
		w.put(person(w.inGroup("7", "paint it"), 5))
		w.put(person(w.inGroup("7", "red"), 5))
		w.wantQuiet()
		w.wantAnswers("g", "Which?"+byReply, "painted")
		w.wantAsked(2, "user: P7 (guest): paint it",
			`assistant:  ask({"options":null,"question":"Which?"})`, "tool: The user answered: red")
		wantLines(t, "senders", w.column("SELECT person || ' ' || state FROM inbox"),
			[]string{"5 done", "6 done"})
	})
}
