package bus

import (
	"testing"

	"gateway/store"
)

var (
	alice = Session{Conversation: Address{Account: "tg", Chat: "-5"}, Speaker: "7"}
	bobs  = Session{Conversation: Address{Account: "tg", Chat: "-5"}, Speaker: "8"}
	third = Session{Person: 3}
)

// newScopedInbox returns an inbox whose accounts have different scopes: two of them have the
// given one.
func newScopedInbox(t *testing.T, scope SessionScope) *inboxFixture {
	f := newInboxFixture(t)
	f.SetScopes(map[string]SessionScope{"tg": scope, "wa": scope, "dc": PerChat})
	return f
}

// session puts m and returns the session with which m is stored, and its sequence number.
func (f *inboxFixture) session(m InboundMessage) (Session, int64) {
	f.t.Helper()
	f.seq++
	m.ID = string(rune('a' + f.seq))
	f.tx(func(tx *store.Tx) error {
		_, err := f.Put(tx, m, f.now)
		return err
	})
	list, err := readInbox(f.read(), "id > 0 ORDER BY id DESC LIMIT 1")
	if err != nil {
		f.t.Fatal(err)
	}
	return list[0].Message.Origin.Conversation, list[0].Seq
}

// The scope of an account decides to which conversation a message belongs. A person's message in
// a direct chat never belongs to the conversation of a group.
func TestSessionScopes(t *testing.T) {
	direct := InboundMessage{From: Address{Account: "tg", Chat: "7"}, Sender: Sender{ID: "7"},
		Person: 3}
	elsewhere := InboundMessage{From: Address{Account: "wa", Chat: "49@lid"},
		Sender: Sender{ID: "49@lid"}, Person: 3}
	other := InboundMessage{From: Address{Account: "dc", Chat: "70"}, Sender: Sender{ID: "71"},
		Person: 3}
	stranger := InboundMessage{From: Address{Account: "tg", Chat: "9"}, Sender: Sender{ID: "9"}}
	group := InboundMessage{From: alice.Conversation, Sender: Sender{ID: "7"}, Person: 3, Group: true}
	guest := InboundMessage{From: alice.Conversation, Sender: Sender{ID: "8"}, Group: true}
	topic := guest
	topic.From.Thread = "4"
	task := direct
	task.Origin = Origin{Kind: Task, Session: third.OfTask("1")}
	reminder := direct
	reminder.Origin = Origin{Kind: Job, Run: 1}
	groupHook := InboundMessage{From: alice.Conversation, Sender: Sender{ID: "hook:x"}, Group: true,
		Origin: Origin{Kind: Hook}}
	for name, tt := range map[string]struct {
		m                    InboundMessage
		speaker, person, one Session
	}{
		"direct":           {m: direct, person: third},
		"on WhatsApp":      {m: elsewhere, person: third},
		"account of chats": {m: other},
		"nobody known":     {m: stranger},
		"group":            {m: group, speaker: alice},
		"guest":            {m: guest, speaker: bobs},
		"topic": {m: topic,
			speaker: Session{Conversation: topic.From, Speaker: "8"}},
		"sub-agent":  {m: task},
		"reminder":   {m: reminder, person: third},
		"group hook": {m: groupHook},
	} {
		t.Run(name, func(t *testing.T) {
			for scope, want := range map[SessionScope]Session{
				PerChat: tt.one, PerSpeaker: tt.speaker, PerPerson: tt.person,
			} {
				if got, _ := newScopedInbox(t, scope).session(tt.m); got != want {
					t.Errorf("with %s it belongs to %+v, want %+v", scope, got, want)
				}
			}
		})
	}
}

// A hook's message to a direct chat belongs to the conversation of the person who writes there.
func TestSessionOfHook(t *testing.T) {
	f := newScopedInbox(t, PerPerson)
	from := Address{Account: "tg", Chat: "7"}
	hook := InboundMessage{From: from, Sender: Sender{ID: "hook:x"}, Origin: Origin{Kind: Hook}}
	got, seq := f.session(hook)
	if !got.IsZero() {
		t.Errorf("before anybody has written it belongs to %+v, want the chat", got)
	}
	f.answer(seq)
	f.session(InboundMessage{From: from, Sender: Sender{ID: "7"}, Person: 3})
	if got, _ := f.session(hook); got != third {
		t.Errorf("it belongs to %+v, want %+v", got, third)
	}
}

// While a person's message in a chat is unfinished, the next one belongs to the same
// conversation, even if the configuration changes meanwhile, and also after a restart. A message
// of another person does not follow it.
func TestSessionFollowsOpenMessage(t *testing.T) {
	direct := InboundMessage{From: Address{Account: "tg", Chat: "7"}, Sender: Sender{ID: "7"},
		Person: 3}
	for name, claim := range map[string]bool{"waiting": false, "claimed": true} {
		t.Run(name, func(t *testing.T) {
			f := newScopedInbox(t, PerChat)
			want := func(m InboundMessage, s Session, when string) (seq int64) {
				t.Helper()
				got, seq := f.session(m)
				if got != s {
					t.Errorf("%s the message belongs to %+v, want %+v", when, got, s)
				}
				return seq
			}
			open := want(direct, Session{}, "at first")
			if claim {
				f.take(open, 1)
			}
			set := func(scope SessionScope) { f.SetScopes(map[string]SessionScope{"tg": scope}) }
			set(PerPerson)
			second := want(direct, Session{}, "with the first one open")
			linked := direct
			linked.Person = 4
			f.answer(want(linked, Session{Person: 4}, "as another person"))
			if claim {
				f.finish(1)
			} else {
				f.drop(open)
			}
			f.answer(second)
			open = want(direct, third, "with nothing open")
			set(PerChat)
			second = want(direct, third, "with one of the person open")
			f.Inbox = NewInbox() // another process, with the new configuration
			set(PerChat)
			f.answer(want(direct, third, "after a restart"))
			f.answer(open)
			f.answer(second)
			want(direct, Session{}, "at last")
		})
	}
}

// While a message that a person wrote before two accounts were linked is unfinished, the next
// message belongs to the same conversation. It does not after an unlink, or if no message is
// unfinished.
func TestSessionFollowsLinked(t *testing.T) {
	f := newScopedInbox(t, PerPerson)
	m := InboundMessage{From: Address{Account: "tg", Chat: "7"}, Sender: Sender{ID: "7"}, Person: 3}
	want := func(person, former int64, s Session, when string) (seq int64) {
		t.Helper()
		m.Person, m.Origin.Former = person, former
		got, seq := f.session(m)
		if got != s {
			t.Errorf("%s the message belongs to %+v, want %+v", when, got, s)
		}
		return seq
	}
	first := want(3, 0, third, "at first")
	second := want(4, 3, third, "once linked")
	next := want(4, 3, third, "with both open")
	f.take(first, 1)
	f.tx(func(tx *store.Tx) error { return MovePerson(tx, m.From, 3, 5) })
	want(5, 0, Session{Person: 5}, "once unlinked")
	f.finish(1)
	f.answer(second)
	f.answer(next)
	want(4, 3, Session{Person: 4}, "with nothing open")
}

// In a group, a member's message follows the unfinished message of the same member.
func TestSessionFollowsOwnMessage(t *testing.T) {
	f := newScopedInbox(t, PerSpeaker)
	group := InboundMessage{From: alice.Conversation, Sender: Sender{ID: "7"}, Group: true}
	guest := InboundMessage{From: alice.Conversation, Sender: Sender{ID: "8"}, Group: true}
	if got, _ := f.session(group); got != alice {
		t.Errorf("her message belongs to %+v, want %+v", got, alice)
	}
	if got, _ := f.session(guest); got != bobs {
		t.Errorf("his message belongs to %+v, want %+v", got, bobs)
	}
	f.SetScopes(nil)
	if got, _ := f.session(group); got != alice {
		t.Errorf("with hers open, her next one belongs to %+v, want %+v", got, alice)
	}
	guest.Sender.ID = "9"
	if got, _ := f.session(guest); !got.IsZero() {
		t.Errorf("a third one's belongs to %+v, want the group", got)
	}
}
