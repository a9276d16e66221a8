package whatsapp_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"go.mau.fi/whatsmeow/proto/waE2E"
	"google.golang.org/protobuf/proto"

	"gateway/bus"
	"gateway/channels/whatsapp"
)

// expiring returns a text as phones send it in a chat whose messages disappear.
func expiring(text string, seconds uint32) *waE2E.Message {
	return &waE2E.Message{ExtendedTextMessage: &waE2E.ExtendedTextMessage{Text: &text,
		ContextInfo: &waE2E.ContextInfo{Expiration: &seconds,
			EphemeralSettingTimestamp: proto.Int64(1700000000)}}}
}

// timerMessage returns the message that a phone sends when somebody changes the timer of a chat.
func timerMessage(seconds uint32) *waE2E.Message {
	return &waE2E.Message{ProtocolMessage: &waE2E.ProtocolMessage{
		Type:                waE2E.ProtocolMessage_EPHEMERAL_SETTING.Enum(),
		EphemeralExpiration: &seconds,
	}}
}

// tell sends a message from Ada and waits until the bot has read it.
func (w *world) tell(m *waE2E.Message) {
	w.t.Helper()
	if _, err := w.ada.Send(w.t.Context(), "", m); err != nil {
		w.t.Fatal(err)
	}
	w.wait("the bot has read it", func() bool { return w.server.Pending() == 0 })
}

// wantExpires sends a text and a file to a chat ("" for Ada's) and checks when they disappear.
func (w *world) wantExpires(what, chat string, want int) {
	w.t.Helper()
	to := w.adas()
	if chat != "" {
		to.Chat = chat
	}
	for _, part := range []bus.Part{
		{To: to, Text: what},
		{To: to, File: &bus.File{Attachment: bus.Attachment{Kind: bus.Document, Name: "a.txt"},
			Open: func() (io.ReadSeekCloser, error) {
				return os.Open("timers_test.go")
			}}},
	} {
		id, err := w.ch.Send(w.t.Context(), part)
		if err != nil {
			w.t.Fatal(err)
		}
		w.wait("Ada sees it", func() bool {
			for _, m := range w.ada.Messages(chat) {
				if m.ID == id {
					if m.Expires != want {
						w.t.Errorf("%s: %q disappears after %d s, want %d", what, m.Kind, m.Expires, want)
					}
					return true
				}
			}
			return false
		})
	}
}

// TestTimers checks that our messages disappear after the same time as those of people in the
// chat, also after a restart.
func TestTimers(t *testing.T) {
	t.Parallel()
	w := start(t)
	stop := w.run()
	w.say("hello")
	w.receive(1)
	w.wantExpires("no timer", "", 0)
	w.tell(expiring("secret", 86400))
	w.wantExpires("a message with a timer", "", 86400)
	w.ada.ViewOnce()
	w.receive(3)
	w.wantExpires("a message without content", "", 86400)
	w.tell(&waE2E.Message{EphemeralMessage: &waE2E.FutureProofMessage{
		Message: expiring("wrapped", 604800)}})
	w.wantExpires("an older client", "", 604800)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w.ch = w.channel(whatsapp.Options{})
	w.run()
	w.wantExpires("after a restart", "", 604800)
	w.tell(timerMessage(0))
	w.wantExpires("switched off", "", 0)
	w.tell(timerMessage(90))
	w.wantExpires("switched on", "", 90)
	w.tell(expiring("no more", 0))
	w.wantExpires("a message without a timer", "", 0)
	owner, err := w.server.Owner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Send(t.Context(), w.ada.Chat(), timerMessage(3600)); err != nil {
		t.Fatal(err)
	}
	w.wait("the bot has read it", func() bool { return w.server.Pending() == 0 })
	w.wantExpires("switched on with the bot's phone", "", 3600)
}

// TestGroupTimer checks the same in a group. The server reports a group's timer when it changes,
// and in the answer to a query about the group.
func TestGroupTimer(t *testing.T) {
	t.Parallel()
	w := start(t)
	group := w.server.AddGroup("Friends", false, w.ada)
	if err := w.server.SetGroupTimer(group, 86400); err != nil {
		t.Fatal(err)
	}
	w.run()
	if _, err := w.ada.SayGroup(t.Context(), group, "hello"); err != nil {
		t.Fatal(err)
	}
	w.receive(1)
	w.wantExpires("asked about", group, 86400)
	for _, seconds := range []int{60, 0} {
		if err := w.server.SetGroupTimer(group, seconds); err != nil {
			t.Fatal(err)
		}
		w.say("something behind it")
		w.receive(map[int]int{60: 2, 0: 3}[seconds])
		w.wantExpires("changed", group, seconds)
	}
	// A member's message can't change the timer.
	for i, m := range []*waE2E.Message{expiring("x", 1), timerMessage(1)} {
		if _, err := w.ada.Send(t.Context(), group, m); err != nil {
			t.Fatal(err)
		}
		w.say("something behind it")
		w.receive(5 + i)
		w.wantExpires("claimed", group, 0)
	}
}

// TestGroupTimerAtJoin checks that our messages disappear although the gateway knows the title of
// the group before the first message: somebody has added the account, or renamed the group.
func TestGroupTimerAtJoin(t *testing.T) {
	t.Parallel()
	w := start(t)
	renamed := w.server.AddGroup("Friends", false, w.ada)
	joined := w.server.AddGroup("Others", false, w.ada)
	if err := w.server.Expel(joined); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{renamed, joined} {
		if err := w.server.SetGroupTimer(group, 86400); err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	w.server.Invite(joined, w.ada)
	if err := w.server.RenameGroup(renamed, "Best friends"); err != nil {
		t.Fatal(err)
	}
	for i, group := range []string{renamed, joined} {
		if _, err := w.ada.SayGroup(t.Context(), group, "hello"); err != nil {
			t.Fatal(err)
		}
		w.receive(i + 1)
		w.wantExpires("after a change", group, 86400)
	}
}
