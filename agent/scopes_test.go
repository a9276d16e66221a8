package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/agent/pool"
	"gateway/agent/schedule"
	"gateway/agent/tools/ask"
	"gateway/bus"
	"gateway/memory"
	"gateway/session"
	"gateway/store"
)

// scope sets how the account of all chats shares sessions.
func (w *world) scope(scope bus.SessionScope) {
	w.deps.Inbox.SetScopes(map[string]bus.SessionScope{"test": scope})
}

// ofPerson returns a message of person 3 in a direct chat. The person's sender ID is different in
// each chat.
func (w *world) ofPerson(chat, text string) bus.InboundMessage {
	m := w.message(chat, text)
	m.Person, m.Sender.ID = 3, "of "+chat
	return m
}

// answered returns the messages to a chat, each with the IDs of the messages that it answers.
func (w *world) answered(chat string) (list []string) {
	for _, m := range w.outbox(chat) {
		list = append(list, fmt.Sprintf("%s %v", m.Text, m.Answers))
	}
	return list
}

// The direct chats of a person are one conversation. Each message is answered once, in the chat
// where it was written and in the order of arrival. A message that the person adds in another
// chat gets its own turn.
func TestPersonGoesOnElsewhere(t *testing.T) {
	for _, mode := range []pool.Mode{pool.Steer, pool.Followup, pool.Collect, pool.Interrupt} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = mode
				w.scope(bus.PerPerson)
				release := make(chan struct{})
				w.model.Queue(held(llmtest.Say("one"), release), llmtest.Say("two"),
					llmtest.Say("three"))
				w.start()
				w.put(w.ofPerson("a", "first"))
				w.sleep(time.Minute)
				w.put(w.ofPerson("b", "second"))
				w.put(w.ofPerson("a", "third"))
				close(release)
				w.wantQuiet()
				for chat, want := range map[string][]string{
					"a": {"one [1]", "three [3]"}, "b": {"two [2]"},
				} {
					if got := w.answered(chat); !slices.Equal(got, want) {
						t.Errorf("chat %s was told %q, want %q", chat, got, want)
					}
				}
				w.wantAsked(3, "user: first", "assistant: one", "user: second", "assistant: two",
					"user: third")
			})
		})
	}
}

// A group knows nothing of a person's direct conversation, and the direct conversation knows
// nothing of the group.
func TestPersonStaysOutOfGroups(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scope(bus.PerPerson)
		w.model.Queue(llmtest.Say("noted"), llmtest.Say("hello all"), llmtest.Say("again"))
		w.start()
		w.put(w.ofPerson("a", "my secret"))
		m := w.inGroup("of a", "hello")
		m.Person = 3
		w.put(m)
		w.put(w.ofPerson("b", "what was it?"))
		w.wantQuiet()
		w.wantTranscript("g", "user: Pof a (guest): hello", "assistant: hello all")
		w.wantAsked(3, "user: my secret", "assistant: noted", "user: what was it?")
	})
}

// A question waits for an answer in the chat where it was asked. If the person writes in another
// chat instead, the question counts as declined, and both chats get their answers.
func TestPersonIsAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		chat, result string
		a, b         []string
	}{
		"there": {"a", "The user answered: red", []string{"Which?", "painted"}, nil},
		"elsewhere": {"b", "The user said something else", []string{"Which?", "painted"},
			[]string{"hi"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.scope(bus.PerPerson)
				w.tools(ask.New())
				w.model.Queue(asksFor("Which?"), llmtest.Say("painted"))
				if tt.b != nil {
					w.model.Queue(llmtest.Say("hi"))
				}
				w.start()
				w.put(w.ofPerson("a", "paint it"))
				w.restart()
				w.put(w.ofPerson(tt.chat, "red"))
				w.wantQuiet()
				w.wantAnswers("a", tt.a...)
				w.wantAnswers("b", tt.b...)
				asked := lines(w.request(2).Messages)
				if got := asked[len(asked)-1]; !strings.HasPrefix(got, "tool: "+tt.result) {
					t.Errorf("the result is %q, want %q", got, tt.result)
				}
			})
		})
	}
}

// Commands in each chat of a person apply to the person's one conversation. Jobs belong to their
// chat.
func TestPersonCommands(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scope(bus.PerPerson)
		block := make(chan struct{})
		defer close(block)
		w.jobs(schedule.Options{})
		w.model.Queue(held(llmtest.Say("never"), block), held(llmtest.Say("never"), block),
			llmtest.Say("one"), llmtest.Say("two"))
		w.start()
		w.put(w.ofPerson("a", "first"))
		w.add(w.job("b", schedule.Task, "look"))
		w.put(w.ofPerson("b", "/stop"))
		w.wantAnswers("b", "Stopped, with one job.")
		w.put(w.ofPerson("a", "second"))
		w.put(w.ofPerson("b", "/new"))
		w.put(w.ofPerson("a", "third"))
		w.wantQuiet()
		w.wantAnswers("a", "one", "two")
		w.wantAsked(4, "user: third")
		w.put(w.ofPerson("b", "/queue collect"))
		w.put(w.ofPerson("a", "/queue"))
		w.settle()
		if said := w.outbox("a"); !strings.Contains(said[len(said)-1].Text, "queue mode is collect.") {
			t.Errorf("/queue says %q, want collect", said[len(said)-1].Text)
		}
		key := session.Key{Person: 3}
		info, err := session.ReadInfo(w.read(), key)
		w.must(err)
		if info.Key != key || info.QueueMode != "collect" || info.Messages == 0 {
			t.Errorf("the conversation is %+v", info)
		}
	})
}

// A command in one chat of a person ends their answers in another chat. It replies to the messages
// of its own chat. The others lose the reaction that announces an answer.
func TestPersonStopsElsewhere(t *testing.T) {
	for _, test := range []struct {
		command  string
		role     bus.Role
		answers  []string // ids of the messages that the reply answers
		unmarked []string
	}{
		{"/stop", bus.User, []string{"4", "2"}, []string{"3", "1"}},
		{"/stop", bus.Guest, []string{"4", "2"}, []string{"3", "1"}},
		{"/new", bus.User, []string{"4", "2"}, []string{"3", "1"}},
		{"/forget me now", bus.User, []string{"4", "2"}, []string{"3", "1"}},
	} {
		t.Run(test.command+" of a "+string(test.role), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.opts.QueueMode = pool.Followup
				w.scope(bus.PerPerson)
				w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
				w.start()
				for _, chat := range []string{"a", "b", "a"} {
					m := w.ofPerson(chat, "hello")
					m.Role, m.Sender.ID = test.role, "9"
					w.put(m)
				}
				command := w.ofPerson("b", test.command)
				command.Role, command.Sender.ID = test.role, "9"
				w.put(command)
				w.wantQuiet()
				told := w.outbox("b")
				if len(told) != 1 || !slices.Equal(told[0].Answers, test.answers) {
					t.Errorf("the reply is %+v, want an answer to %q", told, test.answers)
				}
				w.wantUnmarked(test.unmarked...)
			})
		})
	}
}

// A reminder for a person is sent to its chat and is part of the person's conversation.
func TestPersonIsReminded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scope(bus.PerPerson)
		w.jobs(schedule.Options{})
		w.model.Queue(llmtest.Say("hi"), llmtest.Say("Call mum!"), llmtest.Say("well done"))
		w.start()
		w.put(w.ofPerson("a", "hello"))
		j := w.job("a", schedule.Reminder, "call mum")
		j.Person, j.Scope = 3, memory.OfPerson(3)
		w.add(j)
		w.put(w.ofPerson("b", "done"))
		w.wantQuiet()
		w.wantAnswers("a", "hi", "Call mum!")
		w.wantAnswers("b", "well done")
		asked := lines(w.request(3).Messages[1:])
		if len(asked) != 5 || asked[3] != "assistant: Call mum!" {
			t.Errorf("the model was asked %q, want the reminder in it", asked)
		}
	})
}

// If two people are linked, their memories become one, and from then on they have one
// conversation. A person who is unlinked again sees nothing of it.
func TestPersonIsLinked(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scope(bus.PerPerson)
		known := map[int64]bool{3: true, 4: true, 5: true}
		w.outside.known = func(_ store.Queryer, id int64) (bool, error) { return known[id], nil }
		w.model.Queue(llmtest.Say("1"), llmtest.Say("2"), llmtest.Say("3"), llmtest.Say("4"))
		w.start()
		as := func(person int64, chat, text string) {
			m := w.ofPerson(chat, text)
			m.Person = person
			w.put(m)
			w.sleep(time.Minute)
		}
		as(3, "a", "of three")
		as(4, "b", "of four")
		w.tx(func(tx *store.Tx) error {
			_, err := w.deps.Memory.In(memory.OfPerson(4)).Append(tx, memory.Entry{Time: time.Now(),
				Session: "@person-4", Text: "likes tea"})
			return err
		})
		known[4] = false
		as(3, "b", "linked")
		w.wantAsked(3, "user: of three", "assistant: 1", "user: linked")
		if got := w.count("SELECT count(*) FROM sessions WHERE scope = 'person-4'"); got != 0 {
			t.Errorf("%d sessions have the old scope, want none", got)
		}
		_, notes, err := w.deps.Memory.In(memory.OfPerson(3)).Always(w.read(), 9)
		w.must(err)
		if len(notes) != 1 || notes[0].Text != "likes tea" {
			t.Errorf("the memory has %+v, want what was known of the other one", notes)
		}
		as(5, "b", "unlinked")
		w.wantAsked(4, "user: unlinked")
		_, notes, err = w.deps.Memory.In(memory.OfPerson(5)).Always(w.read(), 9)
		w.must(err)
		if len(notes) != 0 {
			t.Errorf("the new person knows %+v, want nothing", notes)
		}
		w.wantQuiet()
	})
}

// A person writes, is linked, and writes again. The second message waits for the answer to the
// first. From then on there is one memory. There is one conversation as soon as no message is
// open.
func TestPersonIsLinkedMeanwhile(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scope(bus.PerPerson)
		w.opts.QueueMode = pool.Followup
		known := map[int64]bool{3: true, 4: true}
		w.outside.known = func(_ store.Queryer, id int64) (bool, error) { return known[id], nil }
		release := make(chan struct{})
		w.model.Queue(llmtest.Say("1"), held(llmtest.Say("2"), release), llmtest.Say("3"),
			llmtest.Say("4"))
		w.start()
		as := func(person, former int64, chat, text string) {
			m := w.ofPerson(chat, text)
			m.Person, m.Origin.Former = person, former
			w.put(m)
			w.sleep(time.Minute)
		}
		as(3, 0, "a", "of three")
		as(4, 0, "b", "of four")
		known[4] = false
		as(3, 4, "b", "linked")
		close(release)
		w.sleep(time.Minute)
		w.wantAsked(3, "user: of four", "assistant: 2", "user: linked")
		if got := w.count("SELECT count(*) FROM sessions WHERE scope = 'person-4'"); got != 0 {
			t.Errorf("%d sessions have the old scope, want none", got)
		}
		as(3, 4, "b", "later")
		w.wantAsked(4, "user: of three", "assistant: 1", "user: later")
		w.wantQuiet()
		w.wantAnswers("b", "2", "3", "4")
	})
}

// Each member of a group has their own conversation, which does not wait for others. Messages in
// the group that are not addressed to the agent are shown in each of these conversations once.
func TestSpeakers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scope(bus.PerSpeaker)
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("to a"), release), llmtest.Say("to b"),
			llmtest.Say("to b again"), llmtest.Say("to a again"))
		w.start()
		overhear := func(text string) {
			w.tx(func(tx *store.Tx) error {
				_, err := w.deps.Inbox.PutAmbient(tx, w.inGroup("c", text), time.Now())
				return err
			})
		}
		overhear("by the way")
		w.put(w.inGroup("a", "one"))
		w.sleep(time.Minute)
		w.put(w.inGroup("b", "two"))
		overhear("and now")
		w.put(w.inGroup("b", "three"))
		w.sleep(time.Minute)
		close(release)
		w.put(w.inGroup("a", "four"))
		w.wantQuiet()
		w.wantAnswers("g", "to b", "to b again", "to a", "to a again")
		for n, want := range map[int][]string{
			1: {"by the way", "one"},
			2: {"by the way", "two"},
			3: {"by the way", "two", "to b", "and now", "three"},
			4: {"by the way", "one", "to a", "and now", "four"},
		} {
			var got []string
			for _, line := range lines(w.request(n).Messages[1:]) {
				for _, word := range []string{"by the way", "and now", "one", "two", "three", "four"} {
					if strings.Contains(line, word) {
						got = append(got, word)
					}
				}
				if said, ok := strings.CutPrefix(line, "assistant: "); ok {
					got = append(got, said)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("request %d has %q, want %q", n, got, want)
			}
		}
		w.put(w.inGroup("a", "/stop"))
		w.settle()
		w.put(w.inGroup("a", "/new"))
		w.wantQuiet()
		if n := w.count("SELECT count(*) FROM sessions WHERE speaker <> '' AND start = 0"); n != 2 {
			t.Errorf("%d conversations go on after a guest's /new, want both", n)
		}
	})
}

// A group member's /stop and /new apply only to that member's conversation.
func TestSpeakerCommands(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scope(bus.PerSpeaker)
		release := make(chan struct{})
		w.model.Queue(held(llmtest.Say("to a"), release), held(llmtest.Say("never"), release),
			llmtest.Say("anew"))
		w.start()
		of := func(sender, text string) {
			m := w.inGroup(sender, text)
			m.Role = bus.User
			w.put(m)
			w.sleep(time.Second)
		}
		of("a", "one")
		of("b", "two")
		of("b", "/stop")
		of("b", "/new")
		of("b", "three")
		close(release)
		w.wantQuiet()
		w.wantAnswers("g", "Stopped.", "A new conversation begins.", "anew", "to a")
		w.wantAsked(3, "user: Pb (user): three")
	})
}

// The configuration of scopes may change while messages wait and a question is open. Open work
// ends in order in the conversation where it began. The next message belongs to the new
// conversation.
func TestScopeChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		w.tools(ask.New())
		release := make(chan struct{})
		w.model.Queue(asksFor("Which?"), held(llmtest.Say("painted"), release), llmtest.Say("two"))
		w.start()
		w.put(w.ofPerson("a", "paint it"))
		w.scope(bus.PerPerson)
		w.put(w.ofPerson("a", "red"))
		w.put(w.ofPerson("a", "/queue followup"))
		w.put(w.ofPerson("a", "more"))
		close(release)
		w.wantQuiet()
		w.model.Queue(llmtest.Say("three"))
		w.put(w.ofPerson("a", "anew"))
		w.wantQuiet()
		var said []string
		for _, m := range w.outbox("a") {
			said = append(said, m.Text)
		}
		want := []string{"Which?", "The queue mode of this conversation is now followup.", "painted",
			"two", "three"}
		if !slices.Equal(said, want) {
			t.Errorf("the chat was told %q, want %q", said, want)
		}
		w.wantAsked(4, "user: anew")
		w.scope(bus.PerChat)
		w.model.Queue(llmtest.Say("four"))
		w.put(w.ofPerson("a", "back"))
		w.wantQuiet()
		if asked := lines(w.request(5).Messages); !strings.HasSuffix(asked[1], "paint it") {
			t.Errorf("the model was asked %q, want the conversation of the chat", asked)
		}
	})
}

// A conversation begins anew with the first message after the time of the daily reset, in the
// time zone of its people. The old conversation becomes notes. An answer that is not finished at
// that time, and the outcome of a sub-agent, still belong to the old conversation.
func TestDailyReset(t *testing.T) {
	inWorld(t, func(w *world) {
		w.opts.ResetAt = map[string]time.Duration{"test": 2*time.Hour + 10*time.Minute}
		w.opts.Location = time.FixedZone("east", 2*3600) // 2:00 local time at the start
		release := make(chan struct{})
		w.model.Queue(llmtest.Say("0"), held(llmtest.Say("1"), release), llmtest.Say("told"),
			llmtest.Say("2"), llmtest.Say("3"))
		w.start()
		asked := func(n int, want ...string) {
			t.Helper()
			got := lines(w.request(n).Messages[1:])
			for i, line := range got {
				before, after, _ := strings.Cut(line, "[Monday 2026-02-16 14:51 +02:00] ")
				got[i] = strings.Split(before+after, "\n")[0]
			}
			wantLines(t, fmt.Sprintf("request %d", n), got, want)
		}
		w.say("a", "zero")
		w.sleep(9 * time.Minute)
		w.say("a", "one")
		w.sleep(2 * time.Minute)
		close(release)
		w.settle()
		asked(2, "user: zero", "assistant: 0", "user: one")
		outcome := w.message("a", "dug")
		key := session.KeyOf(at("a"))
		outcome.Origin = bus.Origin{Kind: bus.Outcome, Label: "dig", Parent: key, Session: key}
		w.put(outcome)
		asked(3, "user: zero", "assistant: 0", "user: one", "assistant: 1",
			`user: [outcome of the sub-agent "dig"; tell the user what matters of it, as your own work]`)
		w.restart()
		w.say("a", "two")
		asked(4, "user: two")
		w.sleep(time.Hour)
		w.restart()
		w.say("a", "three")
		asked(5, "user: two", "assistant: 2", "user: three")
		w.wantQuiet()
		w.wantAnswers("a", "0", "1", "told", "2", "3")
		_, notes, err := w.deps.Memory.In(memory.OfChat(at("a"))).Always(w.read(), 9)
		w.must(err)
		if len(notes) != 2 || !strings.Contains(notes[0].Text, "zero") {
			t.Errorf("the notes of the old conversation are %+v, want those of people and others", notes)
		}
	})
}
