package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/audit"
	"gateway/agent/budget"
	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/tools/ask"
	"gateway/bus"
	"gateway/memory"
	"gateway/memory/document"
	"gateway/session"
	"gateway/store"
)

// tells puts texts of a person into a direct chat, at once.
func (w *world) tells(id int64, chat string, texts ...string) {
	w.t.Helper()
	var list []bus.InboundMessage
	for _, text := range texts {
		list = append(list, person(w.message(chat, text), id))
	}
	w.put(list...)
}

// wantForgotten checks that no file holds text once all was sent that is to be.
func (w *world) wantForgotten(text string) {
	w.t.Helper()
	w.sleep(time.Minute)
	w.sends()
	w.sleep(time.Minute)
	w.lived()
	if left := w.traces(text); len(left) > 0 {
		w.t.Errorf("traces of %q are left in %q", text, left)
	}
}

// Whatever the chats of a person are: with turns, with commands only, of an earlier version, from
// before they were known, in the middle of becoming one with another: nothing is left of them.
func TestForgetMeInOddPlaces(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(w *world){
		"only commands": func(w *world) {
			w.remembers(memory.OfPerson(5), memory.Fact{Key: "secret", Value: "zanzibar"})
			w.tells(5, "b", "/memory", "/nothing zanzibar")
		},
		"before they were known": func(w *world) {
			w.say("a", "zanzibar")
			w.remembers(memory.OfChat(at("a")), memory.Fact{Key: "secret", Value: "zanzibar"})
			w.must(w.deps.Documents.Save(memory.OfChat(at("a")), document.User, "zanzibar", ""))
		},
		"an earlier version": func(w *world) {
			w.put(person(w.message("a", "zanzibar"), 5), person(w.message("b", "zanzibar"), 5))
			w.exec("UPDATE sessions SET scope = ''")
		},
		"files that are still to be merged": func(w *world) {
			old := memory.OfChat(at("a"))
			w.say("a", "hello")
			w.must(w.deps.Documents.Save(old, document.User, "- Name: zanzibar\n", ""))
			w.must(w.deps.Documents.Save("person-5", document.User, "- Style: concise\n", ""))
			w.tells(5, "a", "now you know me", "/forget me now")
		},
		"linked, and silent since": func(w *world) {
			w.tells(6, "b", "zanzibar")
			w.remembers(memory.OfPerson(6), memory.Fact{Key: "secret", Value: "zanzibar"})
			w.must(w.deps.Documents.Save("person-6", document.User, "- Name: zanzibar\n", ""))
			w.outside.former = []int64{6}
		},
		"a choice before the first turn": func(w *world) {
			w.must(w.deps.DB.Tx(w.t.Context(), func(tx *store.Tx) error {
				return session.SetChoice(tx, session.Key{Person: 5}, session.Model, "zanzibar", time.Now())
			}))
		},
		"a thread": func(w *world) {
			m := person(w.message("b", "zanzibar"), 5)
			m.From.Thread = "7"
			w.put(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.atLength()
				w.start()
				do(w)
				w.tells(5, "a", "/forget me now")
				w.wantForgotten("zanzibar")
			})
		})
	}
}

// If another process forgets somebody, the running one forgets what they have chosen, too. It keeps
// what others have chosen.
func TestForgottenByAnotherProcess(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		w.tells(5, "a", "/queue collect")
		w.tells(6, "b", "/queue collect")
		other := NewDispatcher(w.deps, &w.opts)
		w.must(other.eraser.Forget(t.Context(), memory.OfPerson(5)))
		w.sleep(2 * time.Minute)
		if a, b := session.KeyOf(at("a")), session.KeyOf(at("b")); w.d.Has(a) || !w.d.Has(b) {
			t.Errorf("there is a choice for a: %t, for b: %t; want one for b only", w.d.Has(a), w.d.Has(b))
		}
	})
}

// forgets has person 5 known until they are forgotten, and returns what says that they are. From
// then on the sender has the number now; -1: the sender is a stranger.
func (w *world) forgets(now int64) *atomic.Bool {
	forgotten := new(atomic.Bool) // by the command, while the dispatcher hands out messages
	w.outside.known = func(_ store.Queryer, id int64) (bool, error) {
		return id != 5 || !forgotten.Load(), nil
	}
	w.outside.forget = func(*store.Tx, int64, []bus.Address) error {
		forgotten.Store(true)
		return nil
	}
	w.outside.writes = func(m *bus.InboundMessage) bool {
		if m.Sender.ID == "7" {
			m.Person, m.Role = max(now, 0), bus.User
		}
		return now >= 0
	}
	return forgotten
}

// wantUnmarked checks that the message with this id has lost the reaction that says that an answer
// is coming, or, if wanted is not set, that no message has.
func (w *world) wantUnmarked(wanted bool, id string) {
	w.t.Helper()
	var want []string
	if wanted {
		want = []string{id}
	}
	wantLines(w.t, "messages that get no answer", w.outside.dropped, want)
}

// A person writes in another chat while the gateway forgets them. The message gets its sender's
// present number, a new one, or none. The gateway does not answer a stranger.
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
				w.tells(5, "b", "hello") // is held
				if test.now >= 0 {
					w.model.Queue(held(llmtest.Say("who?"), make(chan struct{})), llmtest.Say("who?"))
				}
				w.put(person(w.message("a", "/forget me now"), 5), person(w.message("b", "once more"), 5))
				close(release)
				w.sleep(recoveryInterval)
				w.restart() // the next process knows it, too
				w.wantQuiet()
				wantLines(t, "sessions", w.column("SELECT key || ' of ' || scope FROM sessions"), test.want)
				if n := w.count(`SELECT count(*) FROM inbox WHERE body LIKE '%once more%'
					AND (person = 5 OR body LIKE '%"person":5%')`); n != 0 {
					t.Error("the message still has the old number, or is stored for a stranger")
				}
				w.wantUnmarked(test.now < 0, "4")
			})
		})
	}
}

// A message waits in a group for the answer to an earlier one while its sender is forgotten. Its
// turn belongs to who the sender is afterwards. Nothing is stored under the old number any more.
func TestWaitsInGroupWhileForgotten(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"7", "8"} { // of the same sender, whose turn it joins, or not
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
					w.wantUnmarked(now < 0, "2")
				})
			})
		}
	}
}

// A message that answers a question does so as who its sender is, if they are forgotten at that
// moment.
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
		w.wantAnswers("g", "Which?")
		w.sleep(recoveryInterval)
		w.wantQuiet()
		w.wantAnswers("g", "Which?", "painted")
		w.wantAsked(2, "user: P7 (guest): paint it",
			`assistant:  ask({"options":null,"question":"Which?"})`, "tool: The user answered: red")
		wantLines(t, "senders", w.column("SELECT person || ' ' || state FROM inbox"),
			[]string{"5 done", "6 done"})
	})
}

// The configuration admits people who have no number. The audit log forgets them like others.
func TestForgetMeInAuditLog(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		other := w.message("b", "/export")
		other.Sender = bus.Sender{ID: "8", Name: "Bob"}
		w.put(w.message("a", "/export"), other)
		w.put(w.message("a", "/forget me now"))
		list, err := audit.List(w.read(), 10, 0)
		w.must(err)
		var authors []string
		for _, e := range list {
			authors = append(authors, e.Action+" by "+e.Author())
		}
		slices.Sort(authors)
		want := []string{"exported by Bob (test/8)", "exported by somebody who was forgotten"}
		if !slices.Equal(authors, want) {
			t.Errorf("the audit log says %q, want %q", authors, want)
		}
	})
}

// Of many messages in several chats none is left, in whatever order the chats are erased.
func TestForgetManyMessages(t *testing.T) {
	t.Parallel()
	for _, many := range []string{"a", "b"} {
		t.Run(many, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.atLength()
				w.start()
				w.tells(5, "a", "hello")
				w.tells(5, "b", "hello")
				const old = 3 * store.PruneBatch
				w.exec(`INSERT INTO inbox (account, chat, thread, message, state, body, received_ms,
						origin, parent, person, shared)
					WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
					SELECT 'test', $2, '', 'old ' || i, 'done', '{}', 0, 'person', '', 5, false FROM n`,
					old, many)
				w.exec(`INSERT INTO outbox (account, chat, state, body, created_ms, updated_ms)
					WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
					SELECT 'test', $2, 'sent', '{}', 0, 0 FROM n`, old, many)
				w.tells(5, "a", "/forget me now")
				w.sends()
				w.sleep(time.Minute)
				for _, table := range []string{"inbox", "outbox", "chores"} {
					if n := w.count("SELECT count(*) FROM " + table); n != 0 {
						t.Errorf("%d rows are left in %s, want none", n, table)
					}
				}
			})
		})
	}
}

// What other conversations of a person are doing ends: a turn that waits, one that runs, and
// messages that no turn has taken.
func TestForgetMeElsewhere(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.tools(ask.New())
		var stopped []string
		w.outside.stopped = func(key string, _ *bus.InboundMessage) { stopped = append(stopped, key) }
		w.opts.QueueMode = pool.Followup
		m := llmtest.Func("asks", func(r llm.Request) llmtest.Step {
			text := r.Messages[len(r.Messages)-1].Text
			switch {
			case strings.Contains(text, "question"):
				return asksFor("Which?")
			case strings.Contains(text, "slow"):
				return held(llmtest.Say("zanzibar"), release)
			}
			return llmtest.Say("ok")
		})
		w.deps.Model = m
		w.start()
		w.tells(5, "b", "question zanzibar")
		w.tells(5, "c", "slow zanzibar", "zanzibar again")
		w.tells(5, "a", "/forget me now")
		w.lived()
		if n := m.Running(); n != 0 {
			t.Errorf("%d calls of the model go on", n)
		}
		for _, key := range []string{"test/a", "test/b", "test/c"} {
			if !strings.Contains(strings.Join(stopped, " "), key) {
				t.Errorf("%s has not ended: %q", key, stopped)
			}
		}
		asked := len(m.Requests())
		w.put(person(w.message("b", "hello"), 9), person(w.message("c", "hello"), 9))
		w.lived()
		if n := len(m.Requests()) - asked; n != 2 {
			t.Errorf("the model was asked %d times, want once for each new message", n)
		}
		w.put(person(w.message("b", "and again"), 9), person(w.message("c", "and again"), 9))
		for _, r := range m.Requests()[asked:] {
			if strings.Contains(strings.Join(lines(r.Messages), "\n"), "zanzibar") {
				t.Errorf("the model sees %q", lines(r.Messages[1:]))
			}
		}
		close(release)
		w.wantForgotten("zanzibar")
	})
}

// Somebody outside this process may erase a conversation whose turn waits.
func TestForgetFromOutside(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		w.model.Queue(asksFor("Which?"), llmtest.Say("hello to you"))
		w.start()
		w.tells(5, "b", "question")
		other := NewDispatcher(w.deps, &w.opts)
		w.must(other.eraser.Forget(t.Context(), memory.OfPerson(5)))
		w.tells(9, "b", "hello")
		w.lived()
		told := w.outbox("b")
		if got := told[len(told)-1].Text; got != "hello to you" {
			t.Errorf("told %q", got)
		}
	})
}

// Erasing waits for what is still to be sent; what is new meanwhile stays.
func TestForgetKeepsWhatIsNew(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		w.start()
		w.tells(5, "b", "hello") // its answer is not sent for a while
		w.tells(5, "a", "/forget me now")
		w.sleep(time.Minute)
		w.tells(9, "a", "a new life")
		file, err := w.deps.Media.Put(at("a"), "new.txt", strings.NewReader("new file"))
		w.must(err)
		w.sleep(time.Minute)
		w.sends()
		w.sleep(time.Minute)
		if f, err := w.deps.Media.Open(file.Path); err != nil {
			t.Errorf("the new file is gone: %v", err)
		} else {
			w.must(f.Close())
		}
		if n := w.count("SELECT count(*) FROM inbox"); n != 1 {
			t.Errorf("%d messages are left, want the new one", n)
		}
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left", n)
		}
	})
}

// interrupted is media whose process stops once it has erased something.
type interrupted struct {
	attachment.Media
	stop func()
}

func (m *interrupted) Erase(a bus.Address) error {
	defer m.stop()
	return m.Media.Erase(a)
}

// A restart while somebody is being erased takes no file that came later.
func TestForgetAndRestartKeepsNewFiles(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		media := w.deps.Media
		w.deps.Media = &interrupted{media, func() { w.cancel() }}
		w.start()
		w.tells(5, "a", "hello", "/forget me now")
		w.must(w.stop())
		file, err := media.Put(at("a"), "new.txt", strings.NewReader("new file"))
		w.must(err)
		w.deps.Media = media
		w.start()
		w.sends()
		w.sleep(time.Minute)
		if f, err := media.Open(file.Path); err != nil {
			t.Errorf("the new file is gone: %v", err)
		} else {
			w.must(f.Close())
		}
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}

// The memory of a person moves only to who they are now: never to a chat, and never away from
// somebody who is still known.
func TestScopesThatMustNotMove(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		now  func(m *bus.InboundMessage)
		want memory.Scope // who knows the secret at the end
	}{
		{"not known any more", func(m *bus.InboundMessage) {}, "person-5"},
		{"somebody else", func(m *bus.InboundMessage) { m.Person = 6 }, "person-5"},
		{"a group", func(m *bus.InboundMessage) { m.Group = true }, "person-5"},
		{"linked", func(m *bus.InboundMessage) { m.Person = 9 }, "person-9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				m := w.atLength()
				gone := test.name == "linked"
				w.outside.known = func(_ store.Queryer, id int64) (bool, error) {
					return id == 5 && !gone, nil
				}
				w.start()
				w.put(person(w.message("a", "hello"), 5), person(w.message("b", "hello"), 5))
				w.remembers("person-5", memory.Fact{Key: "code", Value: "tulip", Pinned: true})
				now := w.message("a", "and now")
				test.now(&now)
				w.put(now)
				last := systems(m)[len(systems(m))-1]
				if got := strings.Contains(last, "tulip"); got != gone {
					t.Errorf("the prompt holds what the person knows: %v, want %v", got, gone)
				}
				facts, _, err := w.deps.Memory.In(test.want).Always(w.read(), 0)
				if err != nil || len(facts) != 1 {
					t.Errorf("%s knows %v, %v", test.want, facts, err)
				}
			})
		})
	}
}

// From outside everything is erased, too: also the zone of who is forgotten, and what a turn that
// is ended by it has used is counted for nobody.
func TestForgetFromOutsideIsWhole(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		step := held(llmtest.Say("never"), release)
		step.Usage = llm.Usage{Input: 100, Output: 10}
		w.model.Queue(step)
		w.exec("INSERT INTO zones (scope, zone) VALUES ('person-5', 'Asia/Tokyo')")
		w.start()
		w.tells(5, "b", "question")
		other := NewDispatcher(Deps{DB: w.deps.DB, Inbox: w.deps.Inbox, Outbox: w.deps.Outbox,
			Memory: w.deps.Memory}, nil)
		w.must(other.eraser.Forget(t.Context(), memory.OfPerson(5)))
		close(release)
		w.sleep(time.Minute)
		if n := w.count("SELECT count(*) FROM zones"); n != 0 {
			t.Error("the zone is left")
		}
		wantLines(t, "usage", w.column("SELECT kind || ' ' || key || ' ' || input FROM usage "+
			"WHERE kind <> 'model'"), []string{"day  100"})
	})
}

// What background work has used that was under way when its person was forgotten is counted for
// nobody.
func TestForgetDuringNotes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		release := make(chan struct{})
		w.deps.Notes = stays{w.clerk(), release, func(llm.Request) bool { return true }}
		w.start()
		for range 6 {
			w.tells(5, "b", "hello")
		}
		w.tells(5, "b", "/compact")
		w.tells(5, "a", "/forget me now")
		close(release)
		w.settle()
		w.sends()
		w.sleep(time.Minute)
		if n := w.count("SELECT count(*) FROM usage WHERE kind = 'model' AND key = 'clerk'"); n != 1 {
			t.Fatalf("%d rows count notes, want 1", n)
		}
		wantLines(t, "usage", w.column("SELECT kind || ' ' || key FROM usage "+
			"WHERE kind IN ('person', 'session')"), nil)
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}

// What is still to be sent to an account that is not there any more keeps nobody's traces.
func TestForgetOnAccountThatIsGone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(llmtest.Say("zanzibar"))
		w.outside.served = func(account string) bool { return account != "test" }
		w.start()
		w.tells(5, "a", "hello", "/forget me now")
		w.sleep(time.Minute)
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left", n)
		}
		if left := w.traces("zanzibar"); len(left) > 0 {
			t.Errorf("traces are left in %q", left)
		}
	})
}
