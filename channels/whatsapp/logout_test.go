//go:build !race

package whatsapp_test

import (
	"strconv"
	"strings"
	"testing"

	"gateway/channels/channeltest"
	"gateway/channels/whatsapp"
	"gateway/channels/whatsapp/whatsapptest"
)

// TestLoggedOut removes the gateway from the phone's list of devices, both while it is connected
// and while it is not, and links it again. The client empties its device while other goroutines
// read it, and the race detector reports that. The race is inside the library, so this file is
// excluded from race builds.
func TestLoggedOut(t *testing.T) {
	t.Parallel()
	w := start(t)
	stop := w.run()
	w.say("one")
	w.receive(1)
	w.server.LogOut()
	w.reported("logged out on the phone: run gateway pair wa")
	if err := w.server.PairFile(t.Context(), w.path); err != nil {
		t.Fatal(err)
	}
	w.wait("the bot is connected again", w.server.Connected)
	w.say("two")
	if got := w.receive(2)[1].Text; got != "two" {
		t.Errorf("received %q, want two", got)
	}
	w.send("three")
	if got := w.seen(); len(got) != 1 || got[0] != "three" {
		t.Errorf("Ada sees %q, want three", got)
	}
	_ = stop() // its error is context.Canceled
	w.server.LogOut()
	ch := w.channel(whatsapp.Options{})
	w.runTo(ch, w.in)
	w.wait("the store is empty", func() bool {
		n := 0
		for _, s := range w.in.States() {
			if s == "logged out on the phone: run gateway pair wa" {
				n++
			}
		}
		return n == 2
	})
	if err := w.server.PairFile(t.Context(), w.path); err != nil {
		t.Fatal(err)
	}
	w.wait("the bot is connected again", w.server.Connected)
}

// TestBanned checks that the channel reports that WhatsApp has banned or locked the account,
// also in the next process, until the account is linked again. It runs without the race
// detector, like TestLoggedOut.
func TestBanned(t *testing.T) {
	t.Parallel()
	for reason, words := range map[int]string{
		401: "logged out on the phone: run gateway pair wa",
		403: "WhatsApp has locked this account",
		406: "WhatsApp has banned this account",
	} {
		t.Run(strconv.Itoa(reason), func(t *testing.T) {
			w := start(t)
			w.server.FailLogin(whatsapptest.LoginFailure{Reason: reason})
			stop := w.run()
			w.reported(words)
			_ = stop() // its error is context.Canceled
			w.in, w.ch = new(channeltest.Inbox), w.channel(whatsapp.Options{})
			w.run()
			w.reported(words)
			if last := w.in.States(); !strings.HasSuffix(last[len(last)-1], "run gateway pair wa") {
				t.Errorf("nobody is told what to do: %q", last)
			}
			w.server.LogOut()
			if err := w.server.PairFile(t.Context(), w.path); err != nil {
				t.Fatal(err)
			}
			w.wait("the bot is connected again", w.server.Connected)
		})
	}
}
