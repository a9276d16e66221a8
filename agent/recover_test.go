package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gateway/agent/background"
	"gateway/agent/command"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/question"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// If another process ends a turn while a person writes to it, the message is answered by the next
// turn.
func TestMessageToTurnEndedFromOutside(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		mode  pool.Mode
		steps []llmtest.Step // the first one is held until the turn has ended
	}{
		{"at the answer", pool.Steer, []llmtest.Step{llmtest.Say("never"), llmtest.Say("at last")}},
		{"between tools", pool.Steer, []llmtest.Step{uses("look"), llmtest.Say("at last")}},
		{"collected", pool.Collect, []llmtest.Step{llmtest.Say("never"), llmtest.Say("at last")}},
		{"interrupted", pool.Interrupt, []llmtest.Step{llmtest.Say("never"), llmtest.Say("at last")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = test.mode
				w.tools(act("look", tool.Pure, always("seen")))
				release := make(chan struct{})
				test.steps[0] = held(test.steps[0], release)
				w.model.Queue(test.steps...)
				w.start()
				w.put(person(w.message("a", "first"), 5))
				w.sleep(time.Second)
				if test.mode != pool.Interrupt { // a message would end the turn
					w.put(person(w.message("a", "dropped"), 5))
				}
				other := NewDispatcher(w.deps, &w.opts)
				w.must(other.eraser.Forget(t.Context(), memory.OfPerson(5)))
				w.put(person(w.message("a", "second"), 9))
				close(release)
				w.sleep(time.Second) // shorter than the interval of the recovery
				w.wantAnswers("a", "at last")
				w.wantQuiet()
				w.lived()
			})
		})
	}
}

// A panickingTranscriber is a Transcriber that panics.
type panickingTranscriber struct{}

func (panickingTranscriber) Transcribe(context.Context, string, io.Reader) (string, error) {
	panic("what was that?")
}

// If a running turn panics while it reads a new message, the new message is not lost.
func TestPanicOfSteeredMessage(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.deps.Transcriber = panickingTranscriber{}
		w.deps.Media.(*mediaFolder).files = map[string]string{"v.ogg": "sound"}
		w.tools(act("look", tool.Pure, always("seen")))
		release := make(chan struct{})
		w.model.Queue(held(uses("look"), release))
		w.start()
		w.say("a", "first")
		w.put(carrying(w.message("a", ""),
			bus.Attachment{Kind: bus.Voice, Type: "audio/ogg", Seconds: 3, Ref: "v.ogg"}))
		close(release)
		w.sleep(time.Second) // shorter than the interval of the recovery
		w.wantAnswers("a", turn.SayPanic, turn.SayPanic)
		w.wantQuiet()
	})
}

// Messages and turns that no session has any more are found again.
func TestOrphansAreFound(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("found"), llmtest.Say("resumed"))
		w.start()
		synctest.Wait()
		w.d.last = 1 // as if the message was handed out
		w.say("a", "lost")
		w.wantAnswers("a")
		w.sleep(recoveryInterval)
		w.wantAnswers("a", "found")
		turn := w.leave("b", "hello", 1)
		w.exec("UPDATE turns SET epoch = $1 WHERE id = $2", w.d.pool.Lease.Epoch, turn.ID)
		w.wantQuiet()
		w.wantAnswers("b", "resumed")
	})
}

// A message that can't be read is marked as bad and does not delay other messages.
func TestUnreadableMessage(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hi"))
		w.tx(func(tx *store.Tx) error {
			_, err := w.deps.Inbox.Put(tx, w.message("a", "spoiled"), time.Now())
			return err
		})
		w.exec("UPDATE inbox SET body = '{'")
		w.start()
		w.say("b", "hello")
		w.wantQuiet()
		w.wantAnswers("b", "hi")
		wantLines(t, "inbox", w.column(inboxStates), []string{"1 bad", "2 done"})
	})
}

// An error in one session ends its turn and is reported in its chat. Other sessions continue.
func TestErrorOfOneSession(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("and hi"))
		w.start()
		w.say("a", "hello")
		w.exec("UPDATE messages SET body = '{'")
		w.d.env.Transcripts.Drop(named("test/a"))
		w.say("a", "again")
		w.say("b", "hello")
		w.wantQuiet()
		w.lived()
		w.wantAnswers("a", "hi", turn.SayBroken)
		w.wantAnswers("b", "and hi")
	})
}

// A command that panics or fails gets an answer, and the next commands do, too.
func TestErrorOfCommand(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		run := func(fn func(*store.Tx) (command.Reply, error)) func(
			context.Context, *command.Request) (command.Reply, error) {
			return func(ctx context.Context, r *command.Request) (command.Reply, error) {
				return r.Commit(ctx, fn)
			}
		}
		w.opts.Commands = []command.Command{{Name: "boom", MinRole: bus.User,
			Run: run(func(*store.Tx) (command.Reply, error) { panic("boom") }),
		}, {Name: "broken", MinRole: bus.User,
			Run: run(func(*store.Tx) (command.Reply, error) {
				return command.Reply{}, errors.New("broken")
			}),
		}}
		w.start()
		w.say("a", "/boom", "/broken", "/stop")
		w.wantQuiet()
		w.lived()
		w.wantAnswers("a", turn.SayBroken, turn.SayBroken, "There is nothing to stop.")
	})
}

// TestNothingIsOrphaned runs random events in conversations. It verifies that no message stays
// open.
func TestNothingIsOrphaned(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(act("look", tool.Pure, always("seen")))
		var calls atomic.Int64
		w.deps.Model = checked{llmtest.Func("model", func(llm.Request) llmtest.Step {
			if calls.Add(1)%3 == 0 {
				return llmtest.Step{Delay: time.Second, Calls: uses("look").Calls}
			}
			return llmtest.Step{Delay: time.Second, Text: []string{"hi"}}
		}), t}
		w.start()
		other := NewDispatcher(w.deps, &w.opts)
		modes := []pool.Mode{pool.Steer, pool.Followup, pool.Collect, pool.Interrupt}
		random := rand.New(rand.NewPCG(1, 2))
		for id := range int64(12) {
			chat := fmt.Sprint(id + 1)
			w.say(chat, "/queue "+string(modes[random.IntN(len(modes))]))
			for i := range 12 {
				switch random.IntN(6) {
				case 0:
					w.say(chat, "/stop")
				case 1:
					w.must(other.eraser.Forget(context.Background(), memory.OfPerson(id+1)))
				case 2:
					w.sleep(700 * time.Millisecond)
				default:
					w.put(person(w.message(chat, fmt.Sprint("say ", i)), id+1))
				}
			}
			w.exec("UPDATE outbox SET state = 'sent'")
			w.sleep(8 * time.Second) // shorter than the interval of the recovery
			w.lived()
			n := w.count("SELECT count(*) FROM inbox WHERE state IN ('waiting', 'taken')")
			if n != 0 {
				t.Errorf("%d messages of %s are open", n, chat)
			}
		}
	})
}

// Rows of an earlier process that can't be read delay nothing else at the start. A turn whose
// question is lost ends with an error message. A turn whose address is lost continues at the
// address of its session. A background task is done even if its notice is lost.
func TestUnreadableAtStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(llmtest.Say("resumed"))
		asked := w.leave("a", "hello", 1, intent("ask"))
		w.tx(func(tx *store.Tx) error {
			err := question.Put(tx, &question.Question{Kind: question.Ask, Session: "test/a",
				Turn: asked.ID, Call: "left_0", Expires: time.Now().Add(time.Hour)})
			if err != nil {
				return err
			}
			work := background.Work{Kind: background.Erase, Scope: "chat-none"}
			return background.Store{}.Put(tx, background.Task{Work: work, State: []byte("{}")}, time.Now())
		})
		w.exec("UPDATE questions SET body = '{'")
		w.exec("UPDATE chores SET tell = '{'")
		left := w.leave("b", "hello", 1)
		w.exec("UPDATE turns SET address = '{' WHERE id = $1", left.ID)
		w.start()
		w.wantQuiet()
		w.lived()
		w.wantAnswers("a", turn.SayBroken)
		w.wantAnswers("b", "resumed")
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}

// A message that can't be read, and whose turn was about to begin when processes crashed, is set
// aside at the start.
func TestUnreadableSuspect(t *testing.T) {
	t.Parallel()
	for _, sets := range []string{"handed = 1", "crashes = 2"} {
		inWorld(t, func(w *world) {
			w.model.Queue(llmtest.Say("hi"), llmtest.Say("hi"))
			w.put(w.message("a", "hello"), w.message("b", "hello"))
			w.exec("UPDATE inbox SET " + sets)
			w.exec("UPDATE inbox SET body = '{' WHERE chat = 'a'")
			w.start()
			w.say("c", "hello")
			w.wantQuiet()
			w.wantAnswers("b", "hi")
			w.wantAnswers("c", "hi")
			wantLines(t, "inbox", w.column(inboxStates), []string{"1 bad", "2 done", "3 done"})
		})
	}
}
