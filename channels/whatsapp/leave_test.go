package whatsapp_test

import (
	"errors"
	"testing"

	"gateway/channels"
	"gateway/channels/whatsapp"
)

// TestLeave checks which of WhatsApp's answers count as a refusal when the account leaves a
// group.
func TestLeave(t *testing.T) {
	w := startWith(t, whatsapp.Options{})
	friends := w.server.AddGroup("Friends", false, w.ada)
	expelled := w.server.AddGroup("Expelled", false, w.ada)
	if err := w.server.Expel(expelled); err != nil {
		t.Fatal(err)
	}
	w.run()
	for _, group := range []string{expelled, "120363@g.us"} {
		if err := w.ch.Leave(t.Context(), group); err != nil {
			t.Errorf("Leave of %s, which has no such member = %v", group, err)
		}
	}
	w.server.RefuseLeave(405)
	if err := w.ch.Leave(t.Context(), friends); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Leave that WhatsApp refuses = %v, want %v", err, channels.ErrRefused)
	}
	w.server.RefuseLeave(0)
	if err := w.ch.Leave(t.Context(), friends); err != nil || w.server.InGroup(friends) {
		t.Errorf("Leave = %v", err)
	}
	if err := w.ch.Leave(t.Context(), w.ada.Chat()); !errors.Is(err, channels.ErrRefused) {
		t.Errorf("Leave of a direct chat = %v, want %v", err, channels.ErrRefused)
	}
}
