package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/persona"
	"gateway/agent/speech"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/memory/document"
	"gateway/session"
)

// within gives the world the tools look and change, a model "Small" besides "main", and policies.
func (w *world) within(policies ...persona.Policy) (small *llmtest.Model) {
	small = w.choose()
	w.tools(act("look", tool.Pure, always("seen")), act("change", tool.Once, always("changed")))
	w.opts.Places = &turn.Places{Table: persona.NewTable(nil, policies),
		Models: map[string]*turn.Choice{"Small": &w.opts.Choices[1], "main": &w.opts.Choices[0]}}
	return small
}

// offered returns the names of the tools in a request.
func offered(r llm.Request) (names []string) {
	for _, s := range r.Tools {
		names = append(names, s.Name)
	}
	return names
}

// A group has the tools and the model of its policy. Other chats have all tools and the default
// model. A tool that the policy withholds can't be called.
func TestPolicyOfGroup(t *testing.T) {
	inWorld(t, func(w *world) {
		small := w.within(persona.Policy{ID: "p", Chats: []string{"test/g"}, Model: "Small",
			Limits: persona.Limits{Deny: []string{"cha*"}}})
		small.Queue(uses("change"), llmtest.Say("not possible"))
		w.model.Queue(uses("change"), llmtest.Say("changed"))
		w.start()
		w.put(w.inGroup("a", "change it"))
		w.sleep(time.Minute)
		w.wantAnswers("g", "not possible")
		requests := small.Requests()
		if len(requests) != 2 {
			t.Fatalf("the group's model was asked %d times, want twice", len(requests))
		}
		last := requests[1].Messages[len(requests[1].Messages)-1].Text
		if got := offered(requests[0]); !slices.Equal(got, []string{"look"}) ||
			!strings.Contains(last, `there is no tool "change"`) {
			t.Errorf("the group has the tools %q, and the call returns %q", got, last)
		}
		w.say("a", "change it")
		w.settle()
		w.wantAnswers("a", "changed")
		if got := offered(w.request(1)); !slices.Equal(got, []string{"change", "look"}) {
			t.Errorf("elsewhere there are the tools %q", got)
		}
	})
}

// The policy of a person applies to that person in a group and in their direct chat, and to
// nobody else.
func TestPolicyOfPerson(t *testing.T) {
	inWorld(t, func(w *world) {
		w.within(persona.Policy{ID: "p", People: []string{"test/a"},
			Limits: persona.Limits{Tools: []string{"look"}}})
		w.start()
		for i, tt := range []struct {
			m    bus.InboundMessage
			want []string
		}{
			{w.inGroup("a", "hello"), []string{"look"}},
			{w.inGroup("b", "hello"), []string{"change", "look"}},
			{w.message("a", "hello"), []string{"change", "look"}},
			{w.message("a", "hello"), []string{"look"}},
		} {
			if i == 3 {
				tt.m.Sender.ID = "a"
			}
			w.model.Queue(llmtest.Say("hello"))
			w.put(tt.m)
			w.sleep(time.Minute)
			if got := offered(w.request(i + 1)); !slices.Equal(got, tt.want) {
				t.Errorf("message %d: the tools are %q, want %q", i, got, tt.want)
			}
		}
	})
}

// If a policy requires an approval for a tool, everybody needs one, even if the rules allow the
// tool.
func TestPolicyAsks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.within(persona.Policy{ID: "p", Accounts: []string{"test"},
			Limits: persona.Limits{Ask: []string{"change"}}})
		w.model.Queue(uses("change"), llmtest.Say("done"))
		w.start()
		w.say("a", "change it")
		w.settle()
		if got := w.outbox("a"); len(got) != 1 ||
			!strings.Contains(got[0].Text, "`change` wants to run") {
			t.Fatalf("the person reads %+v, want a request for approval", got)
		}
		w.say("a", "/approve "+w.code())
		w.wantQuiet()
		if got := w.lastSay("a").Text; got != "done" {
			t.Errorf("after the approval the answer is %q", got)
		}
	})
}

// A model that an admin has chosen in a chat has priority over the model of a policy, even if it
// is the default model.
func TestChosenModelBeforePolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		small := w.within(persona.Policy{ID: "p", Accounts: []string{"test"}, Model: "Small"})
		small.Queue(llmtest.Say("small"))
		w.model.Queue(llmtest.Say("main"))
		w.start()
		w.say("a", "hello")
		w.settle()
		w.say("a", "/model main", "hello")
		w.settle()
		w.wantAnswers("a", "small", "This conversation uses the model `main` (big-1), then spare from "+
			"its next answer on. `/model default` undoes that.", "main")
	})
}

// A policy says when answers are spoken and how much of the work is shown. A choice in a chat has
// priority over the policy, also after a restart. In a group only admins can choose.
func TestChosenBeforePolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.within(persona.Policy{ID: "p", Accounts: []string{"test"}, Voice: speech.Always,
			Activity: "full"})
		w.deps.Voice = &speech.Voice{Synthesizer: silence{}, MaxText: 100,
			Readable:  func(md string) string { return md },
			Withholds: func(string) bool { return false },
			Plays:     func(string) bool { return true }}
		w.opts.Voice = speech.Never
		w.start()
		want := func(chat, voice, shows string) {
			t.Helper()
			m := w.message(chat, "")
			s := w.d.pool.ConfigOf(session.KeyOf(m.From)).ForPlace(persona.PlaceOf(&m))
			if s.Voice != voice || string(s.Activity) != shows {
				t.Errorf("%s: voice %q and activity %q, want %q and %q", chat, s.Voice, s.Activity, voice,
					shows)
			}
		}
		want("a", speech.Always, "full")
		w.say("a", "/voice", "/voice auto", "/activity", "/activity off", "/activity loud")
		guest := w.message("g", "/activity off")
		guest.Group, guest.Role = true, bus.User
		w.put(guest)
		w.wantQuiet()
		said := strings.Join(w.texts("a"), "\n")
		for _, text := range []string{"with a voice message, too, with the text beside it. `/voice",
			"Everybody in this chat sees them. `/activity off|compact|full` changes it.",
			"I only show my answers here.", "That is not a way to show my work. Use `/activity off`, " +
				"`/activity compact`, `/activity full`, or `/activity default`."} {
			if !strings.Contains(said, text) {
				t.Errorf("a was told %q, want %q in it", said, text)
			}
		}
		want("a", speech.Auto, "off")
		want("b", speech.Always, "full")
		want("g", speech.Always, "full")
		w.must(w.stop())
		w.start()
		want("a", speech.Auto, "off")
		w.say("a", "/activity default", "/voice default")
		w.wantQuiet()
		want("a", speech.Always, "full")
	})
}

// withPersonas gives the world the personas "pirate", "tutor" and "plain", shared documents,
// documents of the first two personas, and policies.
func (w *world) withPersonas(policies ...persona.Policy) {
	w.within(policies...)
	dir := filepath.Dir(w.path)
	for name, text := range map[string]string{
		"SOUL.md": "You are calm.", "AGENTS.md": "You work slowly.",
		"personas/pirate/SOUL.md":  "You are a pirate.",
		"personas/pirate/SHIP.md":  "The ship is called Pearl.",
		"personas/tutor/SOUL.md":   "You are a tutor.",
		"personas/tutor/AGENTS.md": "",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		w.must(os.MkdirAll(filepath.Dir(file), 0o700))
		w.must(os.WriteFile(file, []byte(text), 0o600))
	}
	root, err := os.OpenRoot(dir)
	w.must(err)
	w.t.Cleanup(func() { w.must(root.Close()) })
	w.opts.Places.Documents = document.New(root, nil, nil)
	w.opts.Places.Table = persona.NewTable([]persona.Persona{
		{ID: "pirate", Name: "Bart"}, {ID: "tutor"}, {ID: "plain"}}, policies)
}

// wantSystem checks which names and documents of personas are in the system prompt of a request.
func (w *world) wantSystem(n int, want ...string) {
	w.t.Helper()
	system := w.request(n).Messages[0].Text
	var got []string
	for _, text := range []string{"# Bart", "# gateway", "## AGENTS.md\n\nYou work slowly.",
		"## SOUL.md\n\nYou are calm.", "## SOUL.md\n\nYou are a pirate.",
		"## SOUL.md\n\nYou are a tutor.", "## SHIP.md\n\nThe ship is called Pearl."} {
		if strings.Contains(system, text) {
			got = append(got, text[strings.LastIndexByte(text, '\n')+1:])
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("request %d has %q, want %q", n, got, want)
	}
}

// A document of a persona replaces the shared one with the same name, even if it is empty. Other
// documents of the persona are added. A persona without documents answers like the agent.
func TestPersonaDocuments(t *testing.T) {
	inWorld(t, func(w *world) {
		w.withPersonas(persona.Policy{ID: "g", Chats: []string{"test/g"}, Persona: "pirate"},
			persona.Policy{ID: "b", Chats: []string{"test/b"}, Persona: "tutor"},
			persona.Policy{ID: "c", Chats: []string{"test/c"}, Persona: "plain"})
		w.start()
		for range 4 {
			w.model.Queue(llmtest.Say("hello"))
		}
		w.put(w.inGroup("a", "hello"))
		w.sleep(time.Minute)
		for _, chat := range []string{"b", "c", "a"} {
			w.say(chat, "hello")
			w.settle()
		}
		w.wantSystem(1, "# Bart", "You work slowly.", "You are a pirate.", "The ship is called Pearl.")
		w.wantSystem(2, "# gateway", "You are a tutor.")
		w.wantSystem(3, "# gateway", "You work slowly.", "You are calm.")
		w.wantSystem(4, "# gateway", "You work slowly.", "You are calm.")
		w.say("b", "/status")
		if got := w.lastSay("b").Text; !strings.Contains(got, "- Persona: tutor\n") {
			t.Errorf("the status is %q, want the persona in it", got)
		}
	})
}

// A turn that an earlier process has left keeps the persona with which it began, even if it had
// none. The next turn has the present persona.
func TestPersonaOfResumedTurn(t *testing.T) {
	for began, want := range map[string]string{"pirate": "You are a pirate.", "": "You are calm.",
		"gone": "You are a tutor."} {
		t.Run(began, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.withPersonas(persona.Policy{ID: "p", Accounts: []string{"test"}, Persona: "tutor"})
				left := w.leave("a", "hello", 1)
				w.exec("UPDATE turns SET persona = $1 WHERE id = $2", began, left.ID)
				w.model.Queue(llmtest.Say("one"), llmtest.Say("two"))
				w.start()
				w.settle()
				w.say("a", "and now")
				w.settle()
				w.wantAnswers("a", "one", "two")
				for n, want := range []string{want, "You are a tutor."} {
					if got := w.request(n + 1).Messages[0].Text; !strings.Contains(got, want) {
						t.Errorf("request %d lacks %q", n+1, want)
					}
				}
				if got := w.column("SELECT persona FROM turns ORDER BY id"); !slices.Equal(got,
					[]string{began, "tutor"}) {
					t.Errorf("the turns have the personas %q", got)
				}
			})
		})
	}
}

// A suspended turn also keeps its persona if the settings change.
func TestPersonaOfSuspendedTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		w.withPersonas(persona.Policy{ID: "p", Accounts: []string{"test"}, Persona: "pirate",
			Limits: persona.Limits{Ask: []string{"change"}}})
		w.model.Queue(uses("change"), llmtest.Say("done"))
		w.start()
		w.say("a", "change it")
		w.settle()
		next := w.d.pool.Config().Settings
		places := *next.Places
		places.Table = persona.NewTable([]persona.Persona{{ID: "pirate"}, {ID: "tutor"}},
			[]persona.Policy{{ID: "p", Accounts: []string{"test"}, Persona: "tutor"}})
		next.Places = &places
		w.d.Configure(w.deps.Model, w.deps.Notes, next)
		w.say("a", "/approve "+w.code())
		w.wantQuiet()
		if got := w.lastSay("a").Text; got != "done" {
			t.Errorf("the answer is %q", got)
		}
		if got := w.request(2).Messages[0].Text; !strings.Contains(got, "You are a pirate.") {
			t.Error("the turn has lost its persona")
		}
		turn, err := session.RunningTurn(w.read(), session.KeyOf(at("a")))
		if err != nil || turn != nil {
			t.Errorf("the turn %+v still runs, %v", turn, err)
		}
	})
}

// The limits of a person who joins a turn apply from then on, in addition to those of the first
// author.
func TestPolicyOfJoiner(t *testing.T) {
	inWorld(t, func(w *world) {
		w.within(persona.Policy{ID: "p", People: []string{"test/b"},
			Limits: persona.Limits{Deny: []string{"change"}}})
		release := make(chan struct{})
		w.model.Queue(held(uses("look"), release), uses("change"), llmtest.Say("done"))
		w.start()
		w.say("a", "hello")
		w.sleep(time.Minute)
		m := w.message("a", "me too")
		m.Sender.ID = "b"
		w.put(m)
		w.settle()
		close(release)
		w.sleep(time.Minute)
		w.wantAnswers("a", "done")
		for n, want := range [][]string{{"change", "look"}, {"look"}, {"look"}} {
			if got := offered(w.request(n + 1)); !slices.Equal(got, want) {
				t.Errorf("request %d offers %q, want %q", n+1, got, want)
			}
		}
	})
}

// The model of a policy has priority over the model of a turn's origin. Without a policy the
// model of the origin applies.
func TestPolicyBeforeModelOfOrigin(t *testing.T) {
	inWorld(t, func(w *world) {
		small := w.within(persona.Policy{ID: "p", Chats: []string{"test/a"}, Model: "main"})
		w.opts.Models = map[bus.OriginKind]*turn.Choice{bus.Hook: &w.opts.Choices[1]}
		w.model.Queue(llmtest.Say("main"))
		small.Queue(llmtest.Say("small"))
		w.start()
		for _, chat := range []string{"a", "b"} {
			m := w.message(chat, "posted")
			m.Origin = bus.Origin{Kind: bus.Hook, Label: "deploys"}
			w.put(m)
			w.sleep(time.Minute)
		}
		w.wantAnswers("a", "main")
		w.wantAnswers("b", "small")
	})
}
