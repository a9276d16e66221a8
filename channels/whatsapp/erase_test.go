package whatsapp_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"gateway/bus"
	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
	"gateway/store"
)

// has reports whether a file of the store contains a text.
func (w *world) has(text string) bool {
	w.t.Helper()
	found := false
	files, err := filepath.Glob(w.path + "*")
	if err != nil || len(files) == 0 {
		w.t.Fatalf("the store is %q, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
		found = found || bytes.Contains(content, []byte(text))
	}
	return found
}

// After a person is erased, the store has no trace of them, whether or not the account is
// connected. Other people lose nothing. Later messages of the erased person arrive and can be
// answered, in their chat and in a group.
func TestErase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		as      whatsapptest.Identity
		running bool
	}{
		{"known", whatsapptest.Known, true},
		{"known, not connected", whatsapptest.Known, false},
		{"by phone", whatsapptest.ByPhone, true},
		{"by phone, not connected", whatsapptest.ByPhone, false},
		{"without a hidden id", whatsapptest.NoLID, true},
		{"without a hidden id, not connected", whatsapptest.NoLID, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			zoe := w.person("Zoe Zanzibar", tt.as)
			group := w.server.AddGroup("Friends", tt.as == whatsapptest.NoLID, w.ada, zoe)
			stop := w.run()
			w.say("hello") // from Ada
			n := 1
			talk := func(chat, text string) {
				t.Helper()
				said, err := zoe.SayGroup(t.Context(), chat, text)
				if err != nil {
					t.Fatal(err)
				}
				n++
				m := w.receive(n)[n-1]
				if m.Text != text {
					t.Errorf("received %q as %s, want %q", m.Text, said, text)
				}
				if tt.as == whatsapptest.NoLID {
					return // the library can't write to such a person
				}
				_, err = w.ch.Send(t.Context(), bus.Part{Key: text, To: m.From, Text: "re " + text})
				if err != nil {
					t.Fatal(err)
				}
				w.wait("Zoe sees the answer", func() bool {
					for _, m := range zoe.Messages(chat) {
						if m.FromBot && m.Text == "re "+text {
							return zoe.Settled() && w.server.Pending() == 0
						}
					}
					return false
				})
			}
			if _, err := zoe.Send(t.Context(), "", timerMessage(3600)); err != nil {
				t.Fatal(err)
			}
			talk("", "one")
			talk(group, "two")
			marks := []string{zoe.Phone(), "Zanzibar"}
			if tt.as != whatsapptest.NoLID {
				marks = append(marks, zoe.LID())
			}
			for _, mark := range marks {
				w.wait("the store has "+mark, func() bool { return w.has(mark) })
			}
			if !tt.running {
				_ = stop() // its error is context.Canceled
			}
			chat := w.in.Messages()[1].From.Chat
			for range 2 {
				if err := w.ch.Erase(t.Context(), []string{chat, "nobody"}); err != nil {
					t.Fatal(err)
				}
				for _, mark := range marks {
					if w.has(mark) {
						t.Errorf("the store still has %q", mark)
					}
				}
			}
			if !w.has(w.ada.LID()) || !w.has(w.ada.Phone()) {
				t.Error("Ada was erased, too")
			}
			if !tt.running {
				w.run()
			}
			talk("", "three")
			talk(group, "four")
		})
	}
}

// A group is erased with its keys, and its members can still write and read.
func TestEraseGroup(t *testing.T) {
	t.Parallel()
	w := start(t)
	group := w.server.AddGroup("Friends", false, w.ada)
	w.run()
	to := bus.Address{Account: "wa", Chat: group}
	for i, text := range []string{"one", "two"} {
		if _, err := w.ada.SayGroup(t.Context(), group, text); err != nil {
			t.Fatal(err)
		}
		w.receive(i + 1)
		if _, err := w.ch.Send(t.Context(), bus.Part{Key: text, To: to, Text: text}); err != nil {
			t.Fatal(err)
		}
		w.wait("Ada sees it", func() bool {
			return len(w.ada.Messages(group)) == 2*(i+1) && w.ada.Settled()
		})
		if err := w.ch.Erase(t.Context(), []string{group}); err != nil {
			t.Fatal(err)
		}
		if w.has(group) {
			t.Errorf("the store still has %s", group)
		}
	}
}

// Erase does not create a missing store, and does not erase the account itself. If another
// process uses the store, Erase returns an error.
func TestEraseNothing(t *testing.T) {
	t.Parallel()
	w := unlinked(t, whatsapp.Options{})
	if err := w.ch.Erase(t.Context(), []string{"1@lid"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store is there: %v", err)
	}
	if err := w.server.PairFile(t.Context(), w.path); err != nil {
		t.Fatal(err)
	}
	own := []string{w.server.BotPhone() + "@s.whatsapp.net", w.server.BotLID() + "@lid"}
	if err := w.ch.Erase(t.Context(), own); err != nil {
		t.Error(err)
	}
	w.run()
	w.reported("connected as")
	err := w.channel(whatsapp.Options{}).Erase(t.Context(), own)
	if !errors.Is(err, store.ErrLocked) {
		t.Errorf("Erase beside another process = %v, want %v", err, store.ErrLocked)
	}
}

// If a person writes while they are erased again and again, all their messages still arrive.
func TestEraseWhileTalking(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.run()
	w.say("0")
	chat := w.receive(1)[0].From.Chat
	const n = 12
	for i := 1; i < n; i++ {
		w.say(strconv.Itoa(i))
		if err := w.ch.Erase(t.Context(), []string{chat}); err != nil {
			t.Fatal(err)
		}
	}
	heard := func() int {
		texts := make(map[string]bool)
		for _, m := range w.in.Messages() {
			texts[m.Text] = true
		}
		return len(texts)
	}
	w.wait("all is heard", func() bool { return heard() == n && w.server.Pending() == 0 })
	w.send("bye")
	if got := w.seen(); len(got) != 1 || got[0] != "bye" {
		t.Errorf("Ada sees %q, want bye", got)
	}
}

// A person who comes back under another name can be erased again completely. This is also true
// if the client has not stored again which number belongs to which hidden id.
func TestEraseAgain(t *testing.T) {
	t.Parallel()
	w := start(t)
	zoe := w.person("Zoe Zanzibar", whatsapptest.Known)
	w.run()
	chat := ""
	for i, text := range []string{"one", "two"} {
		if err := zoe.SetName(t.Context(), "Zanzibar "+text); err != nil {
			t.Fatal(err)
		}
		if _, err := zoe.Say(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		chat = w.receive(i + 1)[i].From.Chat
		_, err := w.ch.Send(t.Context(), bus.Part{Key: text,
			To: bus.Address{Account: "wa", Chat: chat}, Text: text})
		if err != nil {
			t.Fatal(err)
		}
		w.wait("Zoe sees it", func() bool {
			return len(zoe.Messages("")) == 2*(i+1) && zoe.Settled() && w.server.Pending() == 0
		})
		w.wait("her contact by phone to be written", func() bool { // two adjacent columns of a row
			return w.has(zoe.Phone() + "@s.whatsapp.net" + "Zanzibar " + text)
		})
		if err := w.ch.Erase(t.Context(), []string{chat}); err != nil {
			t.Fatal(err)
		}
		for _, mark := range []string{zoe.Phone(), zoe.LID(), "Zanzibar"} {
			if w.has(mark) {
				t.Errorf("the store still has %q", mark)
			}
		}
	}
}
