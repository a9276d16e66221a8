package persona

import (
	"slices"
	"testing"

	"gateway/bus"
)

// The most specific policy that names a persona, a model or an activity wins.
func TestMostSpecificPolicyCounts(t *testing.T) {
	table := NewTable(
		[]Persona{{ID: "calm", Model: "small"}, {ID: "loud"}},
		[]Policy{
			{ID: "b-chat", Chats: []string{"tg/-1"}, Persona: "loud"},
			{ID: "c-chat", Chats: []string{"tg/-1"}, Persona: "calm", Activity: "off"},
			{ID: "account", Accounts: []string{"tg"}, Persona: "calm", Activity: "full",
				Voice: "auto"},
			{ID: "person", People: []string{"tg/7"}, Model: "large"},
			{ID: "person-here", People: []string{"3"}, Chats: []string{"tg/-1"}, Activity: "compact"},
			{ID: "topic", Chats: []string{"tg/-2/5"}, Model: "topic"},
		})
	ann := bus.Sender{ID: "7"}
	for _, tt := range []struct {
		name                     string
		at                       Place
		persona, model, activity string
		policies                 []string
	}{
		{"an account", Place{Address: bus.Address{Account: "tg", Chat: "9"}}, "calm", "small", "full",
			[]string{"account"}},
		{"another account", Place{Address: bus.Address{Account: "dc", Chat: "-1"}}, "", "", "", nil},
		{"a chat", Place{Address: bus.Address{Account: "tg", Chat: "-1"}}, "loud", "", "off",
			[]string{"account", "c-chat", "b-chat"}},
		{"a thread of the chat", Place{Address: bus.Address{Account: "tg", Chat: "-1", Thread: "8"}},
			"loud", "", "off", []string{"account", "c-chat", "b-chat"}},
		{"a person in the chat", Place{bus.Address{Account: "tg", Chat: "-1"}, ann, 3}, "loud",
			"large", "compact", []string{"account", "c-chat", "b-chat", "person", "person-here"}},
		{"the person elsewhere", Place{bus.Address{Account: "tg", Chat: "7"}, ann, 3}, "calm", "large",
			"full", []string{"account", "person"}},
		{"the same id elsewhere", Place{bus.Address{Account: "dc", Chat: "7"}, ann, 0}, "", "", "",
			nil},
		{"a topic", Place{Address: bus.Address{Account: "tg", Chat: "-2", Thread: "5"}}, "calm",
			"topic", "full", []string{"account", "topic"}},
		{"beside the topic", Place{Address: bus.Address{Account: "tg", Chat: "-2"}}, "calm", "small",
			"full", []string{"account"}},
	} {
		c := table.At(tt.at)
		if account := tt.at.Address.Account; (c.Voice == "auto") != (account == "tg") {
			t.Errorf("%s: the voice is %q", tt.name, c.Voice)
		}
		id := ""
		if c.Persona != nil {
			id = c.Persona.ID
		}
		if id != tt.persona || c.Model != tt.model || c.Activity != tt.activity ||
			!slices.Equal(c.Policies, tt.policies) {
			t.Errorf("%s: persona %q, model %q, activity %q, policies %q; want %q, %q, %q, %q", tt.name,
				id, c.Model, c.Activity, c.Policies, tt.persona, tt.model, tt.activity, tt.policies)
		}
	}
}

// On WhatsApp, a policy can name a person by phone number, which is the user name there. Other
// user names identify nobody, because people choose them.
func TestPhoneNumber(t *testing.T) {
	p := Policy{People: []string{"wa/+491", "wa/ann"}}
	for name, want := range map[string]bool{"+491": true, "ann": false, "+492": false} {
		at := Place{Address: bus.Address{Account: "wa"}, Sender: bus.Sender{ID: "1@lid", Username: name}}
		if got := p.appliesTo(at); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A resumed turn keeps the persona with which it began, if the persona still exists. The limits
// are those of the current policies.
func TestResumedKeepsPersona(t *testing.T) {
	at := Place{Address: bus.Address{Account: "tg", Chat: "-1"}}
	table := NewTable([]Persona{{ID: "old", Model: "small"}, {ID: "new", Model: "large"}},
		[]Policy{{ID: "p", Accounts: []string{"tg"}, Persona: "new",
			Limits: Limits{Deny: []string{"exec"}}}})
	for began, want := range map[string]struct{ persona, model string }{
		"old": {"old", "small"}, "new": {"new", "large"}, "": {"", ""}, "gone": {"new", "large"},
	} {
		c := table.Resumed(at, began)
		id := ""
		if c.Persona != nil {
			id = c.Persona.ID
		}
		if id != want.persona || c.Model != want.model {
			t.Errorf("begun with %q: persona %q, model %q", began, id, c.Model)
		}
		if !slices.ContainsFunc(c.Layers, func(l *Limits) bool { return l.Hides("exec", "") }) {
			t.Errorf("begun with %q: the policy's limits are missing", began)
		}
	}
}

// A tool that is judged like a withheld tool is withheld, too. Skills have their own list.
func TestLimits(t *testing.T) {
	l := Limits{Tools: []string{"web_*", "exec", "exec_input"}, Deny: []string{"web_fetch"},
		Skills: []string{"cook"}}
	for name, want := range map[string]bool{"web_search": false, "web_fetch": true, "time": true,
		"exec": false} {
		if got := l.Hides(name, ""); got != want {
			t.Errorf("%s is withheld: %v", name, got)
		}
	}
	l.Deny = []string{"exec"}
	if !l.Hides("exec_input", "exec") {
		t.Error("input for commands is not withheld with the commands")
	}
	if l.HidesSkill("cook") || !l.HidesSkill("weather") || new(Limits).HidesSkill("weather") {
		t.Error("the skills are wrong")
	}
}

// If the id of a chat changes, a policy for the old id still applies, with all its other
// conditions.
func TestMovedChat(t *testing.T) {
	table := NewTable(nil, []Policy{{ID: "chat", Chats: []string{"tg/-1"}},
		{ID: "topic", Chats: []string{"tg/-1/5"}}, {ID: "new", Chats: []string{"tg/-9"}},
		{ID: "bob", Chats: []string{"tg/-1"}, People: []string{"tg/8"}}})
	table.Before = func(a bus.Address) string {
		return map[string]string{"-9": "-1"}[a.Chat]
	}
	for _, tt := range []struct {
		chat, thread, sender string
		want                 []string
	}{
		{"-9", "", "7", []string{"new", "chat"}},
		{"-9", "5", "8", []string{"topic", "new", "chat", "bob"}},
		{"-1", "", "7", []string{"chat"}},
		{"-3", "", "8", nil},
		{"", "", "8", nil},
	} {
		at := Place{Address: bus.Address{Account: "tg", Chat: tt.chat, Thread: tt.thread},
			Sender: bus.Sender{ID: tt.sender}}
		if c := table.At(at); !slices.Equal(c.Policies, tt.want) {
			t.Errorf("%+v: the policies %q apply, want %q", tt, c.Policies, tt.want)
		}
	}
}
