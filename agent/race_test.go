package agent

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/usage"
	"gateway/bus"
	"gateway/store"
)

// inGroup returns m as written by somebody else of a group.
func inGroup(m bus.InboundMessage, sender string, role bus.Role) bus.InboundMessage {
	m.Group, m.Role, m.Sender = true, role, bus.Sender{ID: sender, Name: "P" + sender}
	return m
}

// last returns the last thing that a chat was told.
func (w *world) last(chat string) string {
	w.t.Helper()
	out := w.outbox(chat)
	if len(out) == 0 {
		w.t.Fatalf("chat %s was told nothing", chat)
	}
	return out[len(out)-1].Text
}

// What was written before the question was asked is no answer to it: neither to a question nor to an
// approval, in no mode and not after a restart.
func TestWrittenBeforeTheQuestion(t *testing.T) {
	for _, mode := range []Mode{Steer, Followup, Collect} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, ", restart ", restart), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.tools(ask.New())
					w.opts.QueueMode = mode
					release := make(chan struct{})
					w.model.Queue(held(asksFor("Delete all?", "yes", "no"), release))
					w.start()
					w.say("a", "hello")
					w.sleep(time.Second)
					w.say("a", "yes") // to something else
					close(release)
					w.settle()
					if restart {
						w.restart()
					}
					w.sleep(time.Minute)
					if n := len(w.model.Requests()); n != 1 {
						w.t.Fatalf("the model was asked %d times before the answer, want once", n)
					}
					w.model.Queue(llmtest.Say("kept"))
					if mode != Steer {
						w.model.Queue(llmtest.Say("and yes to you"))
					}
					w.say("a", "/answer "+w.code()+" 2")
					w.wantQuiet()
					if got := w.request(2).Messages[3].Text; got != "The user chose: no" {
						t.Errorf("the result is %q, want that of the button", got)
					}
				})
			})
		}
	}
	inWorld(t, func(w *world) {
		calls := 0
		w.tools(counting("exec", tool.Once, &calls))
		w.opts.Rules, w.opts.QueueMode = askFirst("exec"), Followup
		release := make(chan struct{})
		w.model.Queue(held(uses("exec"), release), llmtest.Say("done"), llmtest.Say("welcome"))
		w.start()
		w.say("a", "clean up", "thanks")
		close(release)
		w.settle()
		w.say("a", "/approve "+w.code())
		w.wantQuiet()
		if got := w.request(2).Messages[3].Text; got != "exec 1" || calls != 1 {
			t.Errorf("the result is %q after %d calls, want that of the one call", got, calls)
		}
	})
}

// What is no plain text decides nothing by its words, but is read.
func TestOtherAnswers(t *testing.T) {
	for _, test := range []struct {
		name string
		as   func(m bus.InboundMessage) bus.InboundMessage
	}{
		{"edit of the request", func(m bus.InboundMessage) bus.InboundMessage {
			m.Edits = "1"
			return m
		}},
		{"voice", func(m bus.InboundMessage) bus.InboundMessage {
			m.Attachments = []bus.Attachment{{Kind: bus.Voice}}
			return m
		}},
		{"photo of an album", func(m bus.InboundMessage) bus.InboundMessage {
			m.Album, m.Attachments = "x", []bus.Attachment{{Kind: bus.Photo}}
			return m
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(ask.New())
				w.model.Queue(asksFor("Delete all?", "yes", "no"), llmtest.Say("fine"))
				w.start()
				w.say("a", "hello")
				w.put(test.as(w.message("a", "yes")))
				w.wantQuiet()
				asked := w.request(2).Messages
				if got := asked[3].Text; got != resultOther {
					t.Errorf("the result is %q, want that nothing was decided", got)
				}
				if got := asked[len(asked)-1].Text; !strings.Contains(got, "yes") {
					t.Errorf("the model reads %q, want what was sent", got)
				}
				w.wantAnswers("a", "Delete all?", "fine")
			})
		})
	}
}

// However many messages of others wait, the answer is taken, and outcomes are never dropped.
func TestParkedQueueFull(t *testing.T) {
	inWorld(t, func(w *world) {
		sub := w.spawning(ask.New())
		release := make(chan struct{})
		sub.Queue(held(llmtest.Say("it is blue"), release))
		w.opts.Waiting, w.opts.QueueMode = 2, Collect
		w.model.Queue(spawns(false, "look"), asksFor("Which?"), llmtest.Say("done"))
		w.start()
		w.put(inGroup(w.message("g", "hello"), "7", bus.Owner))
		w.sleep(time.Second)
		for range 4 {
			w.put(inGroup(w.message("g", "chatter"), "8", bus.User))
		}
		if n := w.count("SELECT count(*) FROM inbox WHERE state = 'dropped'"); n != 2 {
			t.Errorf("%d messages were dropped, want 2", n)
		}
		close(release)
		w.sleep(time.Second)
		w.model.Queue(llmtest.Say("all read"))
		w.put(inGroup(w.message("g", "this one"), "7", bus.Owner))
		w.wantQuiet()
		if n := w.count("SELECT count(*) FROM inbox WHERE state = 'dropped'"); n != 2 {
			t.Errorf("%d messages were dropped at last, want 2", n)
		}
		asked := w.request(3).Messages
		if got := asked[len(asked)-1].Text; got != "The user answered: this one" {
			t.Errorf("the result is %q, want the answer", got)
		}
		asked = w.request(4).Messages
		if got := asked[len(asked)-1].Text; !strings.Contains(got, "it is blue") ||
			strings.Count(got, "chatter") != 2 {
			t.Errorf("the last turn reads %q, want the outcome and what others said", got)
		}
	})
}

// Only people interrupt: the outcome of a sub-agent waits for the end of the answer.
func TestOutcomeInterruptsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		sub := w.spawning()
		w.opts.QueueMode = Interrupt
		outcome, answer := make(chan struct{}), make(chan struct{})
		sub.Queue(held(llmtest.Say("it is blue"), outcome))
		w.model.Queue(spawns(false, "look"), llmtest.Say("sent"),
			held(llmtest.Say("to your question"), answer), llmtest.Say("it is blue"))
		w.start()
		w.say("a", "look", "another question")
		close(outcome)
		w.settle()
		close(answer)
		w.wantQuiet()
		w.wantAnswers("a", "sent", "to your question", "it is blue")
	})
}

// What a turn or a sub-agent has written to the inbox after /stop, and before that was read, does
// not run; what the person writes after it does.
func TestStopOvertaken(t *testing.T) {
	for _, mode := range []Mode{Steer, Collect, Interrupt} {
		for _, parked := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, ", parked ", parked), func(t *testing.T) {
				inWorld(t, func(w *world) {
					sub := w.spawning(ask.New())
					w.opts.QueueMode = mode
					if parked {
						w.model.Queue(asksFor("Which?"))
					} else {
						w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
					}
					w.start()
					w.say("a", "hello")
					w.sleep(time.Second)
					note := func(kind bus.NoteKind, id, session string) bus.InboundMessage {
						m := w.message("a", "blue")
						m.ID, m.Note = id, &bus.Note{Kind: kind, Session: session, Origin: "test/a"}
						return m
					}
					w.model.Queue(llmtest.Say("and hello to you"))
					w.put(w.message("a", "/stop"),
						note(bus.Task, bus.TaskID("test/a", "1-x"), "test/a#1-x"),
						note(bus.Outcome, bus.OutcomeID("test/a", "test/a#1-y:1"), "test/a"),
						w.message("a", "again"))
					w.wantQuiet()
					if n := len(sub.Requests()); n != 0 {
						t.Errorf("a sub-agent was asked %d times after the stop, want never", n)
					}
					if got := w.last("a"); got != "and hello to you" {
						t.Errorf("at last the person was told %q", got)
					}
					if n := len(w.model.Requests()); n != 2 {
						t.Errorf("the model was asked %d times, want for what came before and after", n)
					}
				})
			})
		}
	}
}

// What a group has said among itself is for its conversation: a sub-agent neither sees it nor takes
// it away.
func TestOverheardIsNotForSubagents(t *testing.T) {
	inWorld(t, func(w *world) {
		sub := w.spawning()
		release := make(chan struct{})
		w.model.Queue(held(spawns(false, "look"), release), llmtest.Say("sent"), llmtest.Say("blue"))
		sub.Queue(llmtest.Say("it is blue"))
		w.start()
		w.put(inGroup(w.message("g", "which colour?"), "7", bus.Owner))
		w.tx(func(tx *store.Tx) error {
			_, err := w.deps.Inbox.Overhear(tx, inGroup(w.message("g", "a secret"), "8", bus.User),
				time.Now())
			return err
		})
		close(release)
		w.wantQuiet()
		if got := sub.Requests()[0].Messages; strings.Contains(fmt.Sprint(lines(got[1:])), "secret") {
			t.Errorf("the sub-agent was told %q", lines(got[1:]))
		}
		if got := w.request(3).Messages; !strings.Contains(fmt.Sprint(lines(got[1:])), "secret") {
			t.Errorf("the conversation was told %q, want what it has said before", lines(got[1:]))
		}
	})
}

// crashing is a model whose first call panics.
type crashing struct {
	llm.Model
	crashed *bool
}

func (m crashing) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	if *m.crashed {
		return m.Model.Stream(ctx, r)
	}
	*m.crashed = true
	panic("crash")
}

// What was set aside for a call that has crashed is given back.
func TestPanicHoldsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.deps.Model = crashing{w.model, new(bool)}
		w.opts.Usage = usage.New(&usage.Options{Day: usage.Limit{Tokens: expectedAnswer * 3 / 2}})
		w.model.Queue(llmtest.Say("hello"))
		w.start()
		w.say("a", "hello", "hello again")
		w.wantQuiet()
		w.wantAnswers("a", sayPanic, "hello")
	})
}
