package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/background"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/bus"
	"gateway/memory"
	"gateway/store"
)

// secret is what person 3 has told in chat a.
const secret = "the code of the safe is 4711"

// unlinks makes the sender in chat b, so far a part of person 3, person 5.
func (w *world) unlinks() {
	w.outside.writes = func(m *bus.InboundMessage) bool {
		if m.Sender.ID == "of b" {
			m.Person, m.Role = 5, bus.User
		}
		return true
	}
	s := background.Separation{Account: "test", Sender: "of b", From: 3, To: 5}
	w.must(s.Prepare(w.t.Context(), w.deps.DB))
	w.tx(func(tx *store.Tx) error { return s.Apply(tx, time.Now()) })
}

// wantSeparate checks that request n shows nothing of person 3, and that chat b is person 5's, also
// after person 3 was forgotten.
func (w *world) wantSeparate(n int) {
	w.t.Helper()
	for _, m := range w.request(n).Messages {
		if strings.Contains(m.Text, secret) {
			w.t.Errorf("the model was shown the memory of another person: %s", m.Text)
		}
	}
	wantLines(w.t, "sessions of chat b",
		w.column("SELECT scope FROM sessions WHERE chat = 'b'"), []string{"person-5"})
	wantLines(w.t, "people who have written in chat b",
		w.column("SELECT DISTINCT person || '' FROM inbox WHERE chat = 'b'"), []string{"5"})
	w.tells(3, "a", "/forget me now")
	w.sleep(recoveryInterval)
	if n := w.count("SELECT count(*) FROM messages WHERE session = 'test/b'"); n == 0 {
		w.t.Error("the conversation of person 5 is gone, since person 3 was forgotten")
	}
}

// Two people are unlinked while the agent waits for the answer of one of them. The agent goes on
// with the memory of the person who answers, not with that of the other one.
func TestUnlinkedWhileAsked(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.remembers(memory.OfPerson(3), memory.Fact{Key: "safe", Value: secret, Pinned: true})
		w.tools(ask.New())
		w.model.Queue(llmtest.Say("hi"), asksFor("Which?"), llmtest.Say("painted"))
		w.start()
		w.put(w.ofPerson("a", "hello"))
		w.settle()
		w.put(w.ofPerson("b", "paint it"))
		w.wantAnswers("b", "Which?")
		w.unlinks()
		w.put(person(w.ofPerson("b", "/answer "+w.code()+" red"), 5))
		w.wantQuiet()
		w.wantAnswers("b", "Which?", "Noted: red", "painted")
		w.wantSeparate(3)
	})
}

// Two people are unlinked while a message of one of them waits. The turn that answers the message
// uses the memory of its author.
func TestUnlinkedWhileWaiting(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Followup
		w.remembers(memory.OfPerson(3), memory.Fact{Key: "safe", Value: secret, Pinned: true})
		release := make(chan struct{})
		w.model.Queue(llmtest.Say("hi"), held(llmtest.Say("first"), release), llmtest.Say("second"))
		w.start()
		w.put(w.ofPerson("a", "hello"))
		w.settle()
		w.put(w.ofPerson("b", "one"))
		w.put(w.ofPerson("b", "two"))
		w.settle()
		w.unlinks()
		close(release)
		w.wantQuiet()
		w.wantAnswers("b", "first", "second")
		w.wantSeparate(3)
	})
}

// Two people are unlinked while messages of one of them wait. The messages are answered in their
// order, before those that the person writes after that. None of them joins the turn that began
// with the memory of the other person.
func TestUnlinkedInOrder(t *testing.T) {
	t.Parallel()
	for mode, answers := range map[pool.Mode]int{pool.Followup: 2, pool.Steer: 1, pool.Collect: 1} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.opts.QueueMode = mode
				w.remembers(memory.OfPerson(3), memory.Fact{Key: "safe", Value: secret, Pinned: true})
				release := make(chan struct{})
				w.model.Queue(llmtest.Say("hi"), held(llmtest.Say("first"), release))
				for range answers {
					w.model.Queue(llmtest.Say("later"))
				}
				w.start()
				w.put(w.ofPerson("a", "hello"))
				w.settle()
				w.put(w.ofPerson("b", "one"))
				w.sleep(pool.CollectPause)
				w.put(w.ofPerson("b", "two"))
				w.unlinks()
				w.put(person(w.ofPerson("b", "three"), 5))
				close(release)
				w.wantQuiet()
				var answered []string
				for _, m := range w.outbox("b") {
					answered = append(answered, m.Answers...)
				}
				if !slices.Equal(answered, []string{"2", "3", "4"}) {
					t.Errorf("the messages are answered in the order %q", answered)
				}
				w.wantSeparate(3)
			})
		})
	}
}

// A message interrupts a turn, and its sender is unlinked before the next turn claims it. The
// answer is for the interrupted message, too.
func TestUnlinkedInterrupts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Interrupt
		w.tools(act("slow", tool.Once, func(context.Context) (string, error) {
			time.Sleep(5 * time.Second) // goes on although the turn is interrupted
			return "done", nil
		}))
		w.model.Queue(llmtest.Say("hi"), uses("slow"), llmtest.Say("later"))
		w.start()
		w.put(w.ofPerson("a", "hello"))
		w.settle()
		w.put(w.ofPerson("b", "one"))
		w.sleep(time.Second)
		w.put(w.ofPerson("b", "two"))
		w.unlinks()
		w.wantQuiet()
		var answered []string
		for _, m := range w.outbox("b") {
			answered = append(answered, m.Answers...)
		}
		if !slices.Equal(answered, []string{"2", "3"}) {
			t.Errorf("the messages are answered in the order %q", answered)
		}
	})
}

// What somebody has written in a group goes with them when they are unlinked. It is not in the
// export of the other person.
func TestUnlinkedInGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("there"))
		w.start()
		for _, sender := range []string{"of a", "of b"} {
			w.put(person(w.inGroup(sender, "hello"), 3))
			w.settle()
		}
		w.unlinks()
		w.wantQuiet()
		wantLines(t, "people who have written in the group",
			w.column("SELECT person || ' ' || (body LIKE '%\"person\":' || person || ',%') FROM inbox"),
			[]string{"3 1", "5 1"})
	})
}

// While an unlink moves messages, nobody sees what belongs to somebody else. If the unlink is
// killed meanwhile, everything still belongs to the person from before, who can be forgotten.
func TestUnlinkKilled(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		for range 3 {
			w.model.Queue(llmtest.Say("1"), llmtest.Say("2"), llmtest.Say("3"), llmtest.Say("4"))
			w.put(w.ofPerson("a", secret))
			w.put(w.ofPerson("b", secret))
			w.put(person(w.inGroup("of b", "hello"), 3))
			w.put(person(w.inGroup("of a", "hello"), 3))
			w.settle()
		}
		w.outside.former = []int64{5} // see PrepareUnlink
		s := background.Separation{Account: "test", Sender: "of b", From: 3, To: 5}
		w.must(s.Prepare(w.t.Context(), w.deps.DB))
		wantLines(t, "who has written where", w.column("SELECT chat || person || ' ' || count(*) "+
			"FROM inbox GROUP BY chat, person ORDER BY chat, person"),
			[]string{"a3 3", "b3 1", "b5 2", "g3 3", "g5 3"})
		chats, err := bus.ChatsOf(w.read(), 3)
		if err != nil || len(chats) != 2 {
			t.Errorf("the chats of person 3 are %v, %v, want two", chats, err)
		}
		w.tells(3, "a", "/forget me now")
		w.wantForgotten(secret)
	})
}

// Two people had one conversation in all their chats, and are unlinked while the agent waits for
// the answer of one of them. The agent stops, because its answer could have words of the other one.
func TestUnlinkedInSharedConversation(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.scope(bus.PerPerson)
		w.tools(ask.New())
		w.model.Queue(llmtest.Say("hi"), asksFor("Which?"), llmtest.Say("hello"), llmtest.Say("yes"))
		w.start()
		w.put(w.ofPerson("a", secret))
		w.settle()
		w.put(w.ofPerson("b", "paint it"))
		w.wantAnswers("b", "Which?")
		code := w.code()
		w.unlinks()
		w.sleep(recoveryInterval)
		w.put(person(w.ofPerson("b", "/answer "+code+" red"), 5))
		w.sleep(recoveryInterval)
		w.put(person(w.ofPerson("b", "what did I say?"), 5))
		w.sleep(recoveryInterval)
		w.put(w.ofPerson("a", "are you there?"))
		w.wantQuiet()
		told := w.outbox("b")
		if len(told) != 4 || !strings.Contains(told[1].Text, "were separated") ||
			strings.Join(told[1].Answers, ",") != "2" || told[3].Text != "hello" {
			t.Errorf("chat b was told %+v", told)
		}
		w.wantAsked(3, "user: what did I say?")
		w.wantAnswers("a", "hi", "yes")
	})
}

// exportFunc is a handler of /export.
type exportFunc func(t *background.Task) (background.Outcome, error)

func (f exportFunc) Do(_ context.Context, t *background.Task) (background.Outcome, error) {
	return f(t)
}

// An owner unlinks an account while its person waits for an export. The export is running, or it
// has failed and waits for the next attempt. It has the data of both accounts, so the chat must not
// get it.
func TestUnlinkedWhileExported(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				release, runs := make(chan struct{}), 0
				w.opts.Export = exportFunc(func(t *background.Task) (background.Outcome, error) {
					if runs++; runs == 1 && fails {
						return background.Outcome{}, errors.New("not yet")
					}
					<-release
					if t.Notice == nil {
						return background.Outcome{}, nil
					}
					out := *t.Notice
					out.Text = secret
					return background.Outcome{Send: &out}, nil
				})
				w.model.Queue(llmtest.Say("hi"))
				w.start()
				w.put(w.ofPerson("a", secret))
				w.put(w.ofPerson("b", "/export"))
				w.unlinks()
				close(release)
				w.sleep(time.Hour)
				w.wantQuiet()
				told := w.texts("b")
				if n := len(told); n == 0 || told[n-1] != saySeparated || slices.Contains(told, secret) {
					t.Errorf("chat b was told %q, want %q at the end", told, saySeparated)
				}
			})
		})
	}
}

// saySeparated is what people are told about work that an unlink has ended.
const saySeparated = "I have stopped working on this, because your accounts were separated. " +
	"Please ask me again."
