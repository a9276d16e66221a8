package whatsapp_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"gateway/bus"
	"gateway/channels"
	"gateway/channels/whatsapp"
)

func TestSend(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	asked := w.say("question")
	w.receive(1)
	id, err := w.ch.Send(t.Context(), bus.Part{
		Key: "1", To: w.adas(), Text: "**bold** answer", ReplyTo: asked,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.wait("Ada sees it", func() bool { return len(w.ada.Messages("")) == 2 })
	m := w.ada.Messages("")[1]
	if m.ID != id || m.Text != "*bold* answer" || m.Quote != asked || m.Quoted != "question" ||
		m.QuotedOf != w.ada.Chat() {
		t.Errorf("Ada sees %+v", m)
	}
	_, err = w.ch.Send(t.Context(), bus.Part{Key: "2", To: w.adas(), Text: "a", ReplyTo: "UNKNOWN"})
	if err != nil {
		t.Fatal(err)
	}
	w.wait("Ada sees it", func() bool { return len(w.ada.Messages("")) == 3 })
	if m := w.ada.Messages("")[2]; m.Quote != "UNKNOWN" {
		t.Errorf("Ada sees %+v", m)
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	id := w.send("one")
	if err := w.ch.Edit(t.Context(), w.adas(), id, "**two**"); err != nil {
		t.Fatal(err)
	}
	if got := w.seen(); !slices.Equal(got, []string{"*two*"}) {
		t.Errorf("Ada sees %q", got)
	}
	w = startWith(t, whatsapp.Options{EditWindow: time.Millisecond})
	w.run()
	id = w.send("one")
	w.wait("it is too late", func() bool {
		return errors.Is(w.ch.Edit(t.Context(), w.adas(), id, "three"), channels.ErrRefused)
	})
}

// After a restart, too, the channel knows which messages can be edited. Phones ignore the edit of
// a message that is removed or too old.
func TestEditAfterRestart(t *testing.T) {
	t.Parallel()
	w := start(t)
	stop := w.run()
	kept, removed := w.send("one"), w.send("two")
	if err := w.ch.Remove(t.Context(), w.adas(), removed); err != nil {
		t.Fatal(err)
	}
	edit := func(opts whatsapp.Options, id string) error {
		t.Helper()
		_ = stop() // its error is that of the context
		w.ch = w.channel(opts)
		stop = w.run()
		return w.ch.Edit(t.Context(), w.adas(), id, "three")
	}
	if err := edit(whatsapp.Options{}, kept); err != nil {
		t.Error(err)
	}
	if err := edit(whatsapp.Options{}, removed); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("edit of a removed message: %v, want a refusal", err)
	}
	err := edit(whatsapp.Options{EditWindow: time.Millisecond}, kept)
	if !errors.Is(err, channels.ErrRefused) {
		t.Errorf("edit of an old message: %v, want a refusal", err)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	w := start(t)
	group := w.server.AddGroup("Friends", false, w.ada)
	w.run()
	for chat, to := range map[string]bus.Address{
		"": w.adas(), group: {Account: "wa", Chat: group},
	} {
		id, err := w.ch.Send(t.Context(), bus.Part{Key: "one" + chat, To: to, Text: "one"})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.ch.Remove(t.Context(), to, id); err != nil {
			t.Fatal(err)
		}
		w.wait("it is gone", func() bool {
			seen := w.ada.Messages(chat)
			return len(seen) == 1 && seen[0].Deleted
		})
	}
}

func TestReactAndType(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	id := w.say("hello")
	w.receive(1)
	for _, emoji := range []string{"👀", "👍", ""} {
		if err := w.ch.React(t.Context(), w.adas(), id, emoji); err != nil {
			t.Fatal(err)
		}
		w.wait("Ada sees the emoji", func() bool { return w.ada.Reaction(id) == emoji })
	}
	if err := w.ch.Type(t.Context(), w.adas()); err != nil {
		t.Fatal(err)
	}
	w.wait("Ada sees typing", func() bool { return w.ada.Typing() == 1 })
}

func TestLimits(t *testing.T) {
	t.Parallel()
	l := whatsapp.New("wa", "x.db", nil).Limits(bus.Address{})
	if l.Text != 4000 || l.Measure("**😀**") != 3 || l.Buttons != 0 || l.Caption != 1024 {
		t.Errorf("limits are %+v, an emoji in bold measures %d", l, l.Measure("**😀**"))
	}
}

// A person can also be addressed by phone number, as in the configuration.
func TestSendToNumber(t *testing.T) {
	w := start(t)
	w.run()
	to := bus.Address{Account: "wa", Chat: "+" + w.ada.Phone()}
	if _, err := w.ch.Send(t.Context(), bus.Part{Key: "1", To: to, Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	if got := w.seen(); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("Ada sees %q", got)
	}
}

func TestAddress(t *testing.T) {
	ch := whatsapp.New("wa", t.TempDir()+"/wa.db", nil)
	const phone = "4915112345678@s.whatsapp.net"
	for chat, want := range map[string]string{
		"+4915112345678": phone, "+49 (151) 123-456.78": phone, phone: phone,
		"100000000000002@lid":     "100000000000002@lid",
		"120363041234567890@g.us": "120363041234567890@g.us",
		"4915112345678":           "", "nonsense": "", "+": "", "+12": "", "+0151123456": "", "": "",
		"123@newsletter": "", "123:4@lid": "",
	} {
		got, err := ch.Address(chat)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Address(%q) = %q, %v, want %q", chat, got, err, want)
		}
	}
}
