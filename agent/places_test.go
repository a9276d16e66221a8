package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/persona"
	"gateway/agent/tool"
	"gateway/agent/turn"
	"gateway/bus"
)

// within gives the world the tools look and change, a model "Small" beside "main", and policies.
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

// A group has the tools and the model of its policy, and other chats have all tools and the usual
// model. A withheld tool can't be called.
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

// The policy of a person holds for them in a group and in their direct chat, and for nobody else.
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

// A policy that wants approval for a tool counts for everybody, whatever the rules allow.
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

// The model that an admin has chosen in a chat counts before that of a policy, also if it is the
// usual one.
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
