package bus

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gateway/store"
)

func (f *inboxFixture) overhear(a Address, id, text string) bool {
	return f.ask(func(tx *store.Tx) (bool, error) {
		return f.PutAmbient(tx, InboundMessage{ID: id, From: a, Text: text}, f.now)
	})
}

// heard returns the texts of the ambient messages before a sequence number.
func (f *inboxFixture) heard(a Address, before int64) (texts []string) {
	f.t.Helper()
	list, err := f.Ambient(f.read(), a, before, f.now)
	f.must(err)
	for _, r := range list {
		texts = append(texts, r.Message.Text)
	}
	return texts
}

const newest = 1 << 40

// Ambient messages are stored per conversation and don't wait for an answer. Those that a turn
// has read are forgotten, and so are the ones that are too old or too many.
func TestAmbient(t *testing.T) {
	f := newInboxFixture(t)
	room := Address{Account: "test", Chat: "g"}
	topic := Address{Account: "test", Chat: "g", Thread: "5"}
	if !f.overhear(room, "1", "one") || f.overhear(room, "1", "one again") {
		t.Error("PutAmbient does not tell new messages from old ones")
	}
	f.overhear(topic, "2", "in the topic")
	f.put(room, "3", "to the bot")
	f.overhear(room, "4", "after it")
	if got := f.heard(room, 3); !slices.Equal(got, []string{"one"}) {
		t.Errorf("heard %q before the message", got)
	}
	if got := f.waiting(0); !slices.Equal(got, []string{"to the bot"}) {
		t.Errorf("%q wait", got)
	}
	f.tx(func(tx *store.Tx) error { return f.ForgetAmbient(tx, room, 3) })
	if got := f.heard(room, newest); !slices.Equal(got, []string{"after it"}) {
		t.Errorf("heard %q after the answer", got)
	}
	if got := f.heard(topic, newest); !slices.Equal(got, []string{"in the topic"}) {
		t.Errorf("heard %q in the topic", got)
	}
	var want []string
	for i := range MaxAmbient + 7 {
		f.overhear(topic, fmt.Sprint("m", i), fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
	}
	if got := f.heard(topic, newest); !slices.Equal(got, want[7:]) {
		t.Errorf("heard %q, want the newest %d", got, MaxAmbient)
	}
	f.now = f.now.Add(AmbientAge + time.Second)
	if got := f.heard(topic, newest); len(got) != 0 {
		t.Errorf("heard %q a day later", got)
	}
	f.overhear(topic, "new", "new")
	var rows int
	f.must(f.read().QueryRow("SELECT count(*) FROM inbox WHERE thread = '5'").Scan(&rows))
	if rows != 1 {
		t.Errorf("%d rows are left, want 1", rows)
	}
}

func TestRoles(t *testing.T) {
	order := []Role{Guest, User, Admin, Owner}
	for i, r := range order {
		for j, least := range order {
			if got := r.AtLeast(least); got != (i >= j) {
				t.Errorf("%s.AtLeast(%s) = %v", r, least, got)
			}
		}
	}
	for _, r := range []Role{"", "boss", "Owner"} {
		if r.Valid() || r.AtLeast(Guest) {
			t.Errorf("%q passes for a role", r)
		}
	}
}

// The transcript of a voice message decides the state of its row. It is stored only once.
func TestTranscribeVoice(t *testing.T) {
	f := newInboxFixture(t)
	room := Address{Account: "test", Chat: "g"}
	f.put(room, "1", "")
	f.put(room, "2", "")
	list, err := f.Waiting(f.read(), 0)
	f.must(err)
	hear := func(r Received, h VoiceState, said string) bool {
		r.Message.VoiceState, r.Message.Text = h, said
		return f.ask(func(tx *store.Tx) (bool, error) { return StoreTranscript(tx, r, f.now) })
	}
	if !hear(list[0], Overheard, "to Bob") || !hear(list[1], SpokenCommand, "/new") {
		t.Error("a waiting message was not heard")
	}
	if hear(list[0], NotCommand, "again") {
		t.Error("a message was heard twice")
	}
	if got := f.heard(room, newest); !slices.Equal(got, []string{"to Bob"}) {
		t.Errorf("the context is %q", got)
	}
	if got := f.waiting(0); !slices.Equal(got, []string{"/new"}) {
		t.Errorf("%q wait", got)
	}
}

func TestUtterance(t *testing.T) {
	t.Parallel()
	voice := Attachment{Kind: Voice, Seconds: 30, Size: 200 << 10}
	whole := InboundMessage{Attachments: []Attachment{voice}}
	if whole.Utterance() == nil {
		t.Error("a short voice message is no utterance")
	}
	for name, change := range map[string]func(m *InboundMessage){
		"text":      func(m *InboundMessage) { m.Text = "look" },
		"forwarded": func(m *InboundMessage) { m.Forwarded = "Eve" },
		"edit":      func(m *InboundMessage) { m.Edits = "7" },
		"literal":   func(m *InboundMessage) { m.Literal = true },
		"own":       func(m *InboundMessage) { m.Origin.Kind = Job },
		"two":       func(m *InboundMessage) { m.Attachments = append(m.Attachments, voice) },
		"audio":     func(m *InboundMessage) { m.Attachments[0].Kind = Audio },
		"long":      func(m *InboundMessage) { m.Attachments[0].Seconds = 31 },
		"large":     func(m *InboundMessage) { m.Attachments[0].Size = 300 << 10 },
		"unknown":   func(m *InboundMessage) { m.Attachments[0].Seconds, m.Attachments[0].Size = 0, 0 },
	} {
		m := InboundMessage{Attachments: []Attachment{voice}}
		change(&m)
		if m.Utterance() != nil {
			t.Errorf("%s: an utterance", name)
		}
	}
}
