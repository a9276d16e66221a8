package whatsapp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
)

// TestMessageSentAgain checks that a message that can't be decrypted at first comes before later
// ones of its sender. The messages of others don't wait for it.
func TestMessageSentAgain(t *testing.T) {
	t.Parallel()
	w := startWith(t, whatsapp.Options{HoldWait: patience})
	w.run()
	bob := w.person("Bob", whatsapptest.Known)
	w.say("one")
	w.receive(1)
	resend := w.server.Damage()
	w.say("two")
	w.wait("the message can't be decrypted", func() bool {
		return strings.Contains(w.log.String(), "message can't be decrypted yet")
	})
	w.say("three")
	w.wait("the message is acknowledged", func() bool { return w.server.Pending() == 0 })
	if _, err := bob.Say(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	if list := w.receive(2); list[1].Text != "hello" {
		t.Errorf("received %q, want Bob's message before the held one", list[1].Text)
	}
	resend()
	list := w.receive(4)
	if list[2].Text != "two" || list[3].Text != "three" {
		t.Errorf("received %q and then %q, want two and then three", list[2].Text, list[3].Text)
	}
	w.say("four")
	if list := w.receive(5); list[4].Text != "four" {
		t.Errorf("received %q, want four", list[4].Text)
	}
}

// TestMessageLost checks that messages do not wait for ever for one that can't be decrypted, and
// that a new session releases those that an earlier one held.
func TestMessageLost(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"late": time.Millisecond, "restart": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWith(t, whatsapp.Options{HoldWait: wait})
			stop := w.run()
			w.say("one")
			w.receive(1)
			w.server.Damage()
			w.say("two")
			w.wait("the message can't be decrypted", func() bool {
				return strings.Contains(w.log.String(), "message can't be decrypted yet")
			})
			w.say("three")
			w.wait("the message is acknowledged", func() bool { return w.server.Pending() == 0 })
			if name == "restart" {
				if err := stop(); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				w.run()
			}
			if list := w.receive(2); list[1].Text != "three" {
				t.Errorf("received %q, want three", list[1].Text)
			}
		})
	}
}
