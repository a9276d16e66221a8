package agent

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gateway/agent/attachment"
	"gateway/agent/audit"
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

// tells puts texts of a person into a direct chat, in one transaction.
func (w *world) tells(id int64, chat string, texts ...string) {
	w.t.Helper()
	var list []bus.InboundMessage
	for _, text := range texts {
		list = append(list, person(w.message(chat, text), id))
	}
	w.put(list...)
}

// wantForgotten checks that no file contains text after all open messages were sent.
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

// Each case leaves data of a person in an unusual place: for example in a chat with commands
// only, in a database of an earlier version, or in files that are still to be merged. /forget
// removes all of it.
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

// If another process forgets a person, the running dispatcher drops the person's choices, too. It
// keeps the choices of others.
func TestForgottenByAnotherProcess(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.start()
		w.tells(5, "a", "/queue collect")
		w.tells(6, "b", "/queue collect")
		other := NewDispatcher(w.deps, &w.opts)
		w.must(other.eraser.Forget(t.Context(), memory.OfPerson(5)))
		w.sleep(2 * time.Minute)
		a, b := w.d.pool.Has(session.KeyOf(at("a"))), w.d.pool.Has(session.KeyOf(at("b")))
		if a || !b {
			t.Errorf("there is a choice for a: %t, for b: %t; want one for b only", a, b)
		}
	})
}

// The configuration can admit people who have no number. The audit log forgets them like
// everybody else.
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

// /forget removes all of many messages in several chats, in whichever order the chats are erased.
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

// /forget also ends the work of the person's other conversations: a turn that waits, a turn that
// runs, and messages that no turn has taken.
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

// Another process can erase a conversation whose turn waits. The next message gets an answer.
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

// Another process erases a person while one of their messages is being answered and another one
// waits. Both lose the reaction that announces an answer. Messages of others keep it.
func TestForgetFromOutsideUnmarks(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.QueueMode = pool.Followup
		hold := make(chan struct{})
		w.model.Queue(held(llmtest.Say("never"), hold), held(llmtest.Say("hi"), hold))
		w.start()
		w.tells(5, "a", "hello", "are you there?")
		w.tells(6, "b", "hello")
		other := NewDispatcher(w.deps, &w.opts)
		w.must(other.eraser.Forget(t.Context(), memory.OfPerson(5)))
		w.sleep(2 * time.Minute)
		w.wantUnmarked("1", "2")
		if n := w.count("SELECT count(*) FROM chores WHERE state LIKE '%dropped%'"); n != 0 {
			t.Error("the task still has the messages")
		}
		close(hold)
		w.wantQuiet()
		w.wantAnswers("b", "hi")
	})
}

// Erasing waits until open messages are sent. Messages and files that arrive in the meantime
// stay.
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

// interrupted is media that stops its process after it has erased something.
type interrupted struct {
	attachment.Media
	stop func()
}

func (m *interrupted) Erase(a bus.Address) error {
	defer m.stop()
	return m.Media.Erase(a)
}

// A restart during an erasure does not remove files that came later.
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

// The memory of a person moves only to the person's new number. It never moves to a chat, and
// never away from a person who is still known.
func TestScopesThatMustNotMove(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		now  func(m *bus.InboundMessage)
		want memory.Scope // the scope that has the secret at the end
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

// An erasure by another process is complete, too: it includes the time zone of the person. The
// usage of a turn that it ends is counted for no person.
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

// If a person is forgotten while background work for them runs, its usage is counted for no
// person.
func TestForgetDuringNotes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.atLength()
		release := make(chan struct{})
		w.deps.Notes = heldNotesModel{w.clerk(), release, func(llm.Request) bool { return true }}
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

// /forget does not wait for messages to an account that no longer exists. It erases them, too.
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

// The clock may be ahead when the gateway starts with the machine, and is set back later. That does
// not delay the rest of an erasure, which waits until the last message is sent.
func TestForgetWhenClockIsSetBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var ahead atomic.Int64
		ahead.Store(int64(8 * time.Hour))
		w.opts.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		w.start()
		w.tells(5, "a", "/nothing zanzibar", "/forget me now")
		ahead.Store(0)
		w.wantForgotten("zanzibar")
		if n := w.count("SELECT count(*) FROM chores"); n != 0 {
			t.Errorf("%d chores are left, want none", n)
		}
	})
}

// The same holds if the clock is set back while no gateway runs.
func TestForgetWhenClockWasSetBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ahead := 8 * time.Hour
		w.opts.Now = func() time.Time { return time.Now().Add(ahead) }
		w.start()
		w.tells(5, "a", "/nothing zanzibar", "/forget me now")
		w.must(w.stop())
		ahead = 0
		w.start()
		w.sends()
		w.sleep(2 * time.Hour)
		w.wantForgotten("zanzibar")
	})
}
