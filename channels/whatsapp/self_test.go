package whatsapp_test

import (
	"slices"
	"testing"

	"go.mau.fi/whatsmeow/proto/waE2E"

	"gateway/bus"
	"gateway/channels/channeltest"
	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
)

// withOwner returns a world, the owner of the account with their phone, and the address of the
// owner's chat with themselves.
func withOwner(t *testing.T) (*world, *whatsapptest.Person, bus.Address) {
	t.Helper()
	w := start(t)
	owner, err := w.server.Owner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w, owner, bus.Address{Account: "wa", Chat: w.server.BotLID() + "@lid"}
}

// A note that the account's owner writes to themselves is received as theirs, and can be
// answered.
func TestSelf(t *testing.T) {
	t.Parallel()
	w, owner, self := withOwner(t)
	w.run()
	note, err := owner.Say(t.Context(), "note")
	if err != nil {
		t.Fatal(err)
	}
	m := w.receive(1)[0]
	if m.From != self || m.ID != note || m.Sender.ID != self.Chat || !m.Self || !m.Addressed ||
		m.Group || m.Sender.Username != "+"+w.server.BotPhone() || m.Text != "note" {
		t.Errorf("received %+v", m)
	}
	if err := w.ch.MarkRead(t.Context(), self, []string{note}); err != nil {
		t.Errorf("MarkRead = %v", err)
	}
	if err := w.ch.Type(t.Context(), self); err != nil {
		t.Errorf("Type = %v", err)
	}
	if err := w.ch.React(t.Context(), self, note, "👀"); err != nil {
		t.Errorf("React = %v", err)
	}
	var id string
	for _, key := range []string{"1", "2", "1"} { // the third one repeats a key and is not shown
		id, err = w.ch.Send(t.Context(), bus.Part{Key: key, To: self, Text: "answer", ReplyTo: note})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.ch.Edit(t.Context(), self, id, "better answer"); err != nil {
		t.Errorf("Edit = %v", err)
	}
	w.wait("the owner sees the answers", func() bool {
		return slices.Equal(owner.Texts(), []string{"better answer", "answer"}) &&
			owner.Reaction(note) == "👀"
	})
	if err := owner.Edit(t.Context(), "", note, "better note"); err != nil {
		t.Fatal(err)
	}
	if m := w.receive(2)[1]; m.Edits != note || m.Text != "better note" || !m.Self {
		t.Errorf("received %+v, want an edit", m)
	}
	if _, err := owner.Reply(t.Context(), "", id, "why?"); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Reply(t.Context(), "", note, "well"); err != nil {
		t.Fatal(err)
	}
	all := w.receive(4)
	if q := all[2].ReplyTo; q == nil || !q.Ours {
		t.Errorf("a reply to our answer quotes %+v", q)
	}
	if q := all[3].ReplyTo; q == nil || q.Ours {
		t.Errorf("a reply to the owner's note quotes %+v", q)
	}
}

// Messages that a gateway sent are recognised as such, also by another gateway with the same
// account and after a restart.
func TestSelfOurs(t *testing.T) {
	t.Parallel()
	w, owner, self := withOwner(t)
	other := &world{t: t, server: w.server, url: w.url, path: t.TempDir() + "/other.db", log: w.log,
		in: new(channeltest.Inbox)}
	if err := w.server.PairFile(t.Context(), other.path); err != nil {
		t.Fatal(err)
	}
	other.ch = other.channel(whatsapp.Options{})
	w.run()
	other.run()
	id, err := w.ch.Send(t.Context(), bus.Part{Key: "1", To: self, Text: "answer"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		w.ch.Edit(t.Context(), self, id, "edited"),
		w.ch.React(t.Context(), self, id, "👍"),
		owner.Edit(t.Context(), "", id, "edited by the owner"),
		// For a message that we could not decrypt, the phone sends a copy of its own.
		owner.SendAgain(t.Context(), "", id, &waE2E.Message{Conversation: &id}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := owner.Say(t.Context(), "note"); err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]*world{"the sender": w, "the other": other} {
		if got := w.receive(1); len(got) != 1 || got[0].Text != "note" {
			t.Errorf("%s has received %+v, want the owner's note", name, got)
		}
	}
}
