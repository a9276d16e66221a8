//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"testing"
)

// onWhatsAppOnly returns a world whose only account is on WhatsApp, and runs no gateway. The agent
// repeats what it is told.
func onWhatsAppOnly(t *testing.T) (*world, *scene) {
	t.Helper()
	w := newWorld(t, worldOptions{answer: answerConversations, agent: "queue_mode = \"followup\""})
	o := openWhatsApp(t, w.home)
	w.configure(quiet + "\n[channels.whatsapp]\n" + streaming + "\nstreaming = false\n" + o.config())
	return w, &scene{chatPlatform: o, t: t, name: "whatsapp", w: w}
}

// late is logged when messages have waited in vain.
const late = "a message can't be decrypted; newer ones no longer wait for it"

// TestMessageSentAgain checks that a message that can't be decrypted is answered before the later
// ones of its sender if their phone sends it again soon.
func TestMessageSentAgain(t *testing.T) {
	t.Parallel()
	w, s := onWhatsAppOnly(t)
	o := s.chatPlatform.(*onWhatsApp)
	p := w.start()
	p.ready()
	s.ask("hello", "you said hello")
	for try := range 5 {
		before, gaveUp := len(s.direct()), p.logged(late)
		resend := o.Damage()
		var want []string
		for n := range 3 {
			text := fmt.Sprintf("message %d.%d", try, n)
			s.say(text)
			want = append(want, "you said "+text)
			s.until("the message is stored", func() bool { return o.Pending() == 0 })
		}
		resend()
		s.until("three answers", func() bool { return len(s.direct()) == before+3 })
		if p.logged(late) > gaveUp {
			continue // the machine stood still for too long
		}
		if got := s.direct()[before:]; !slices.Equal(got, want) {
			t.Errorf("Ann reads %q, want %q", got, want)
		}
		break
	}
	p.stop()
}

// TestKillWhileHeld kills the gateway while it holds messages. The next process answers them, and
// the missing one when it comes. Each is answered once.
func TestKillWhileHeld(t *testing.T) {
	t.Parallel()
	w, s := onWhatsAppOnly(t)
	o := s.chatPlatform.(*onWhatsApp)
	p := w.start()
	p.ready()
	s.ask("hello", "you said hello")
	resend := o.Damage()
	s.say("one")
	s.until("the request for the message", func() bool { return o.Pending() == 0 })
	s.say("two")
	s.say("three")
	s.rows(3, "inbox WHERE TRUE") // with the first one
	p.kill()
	p = w.start()
	p.ready()
	s.until("two answers", func() bool { return len(s.direct()) == 3 })
	resend()
	s.until("the third answer", func() bool { return len(s.direct()) == 4 })
	want := []string{"you said hello", "you said two", "you said three", "you said one"}
	if got := s.direct(); !slices.Equal(got, want) {
		t.Errorf("Ann reads %q, want %q", got, want)
	}
	s.rows(0, "inbox WHERE state = 'held'")
	p.stop()
}

// TestStopWhileHeld checks that /stop does not wait for a missing message.
func TestStopWhileHeld(t *testing.T) {
	t.Parallel()
	w, s := onWhatsAppOnly(t)
	o := s.chatPlatform.(*onWhatsApp)
	p := w.start()
	p.ready()
	s.ask("hello", "you said hello")
	for try := 1; ; try++ {
		before, gaveUp := len(s.direct()), p.logged(late)
		resend := o.Damage()
		s.say(fmt.Sprint("message ", try))
		s.until("the request for the message", func() bool { return o.Pending() == 0 })
		s.say("/stop")
		s.until("the answer", func() bool { return len(s.direct()) > before })
		waited := p.logged(late) > gaveUp
		resend()
		s.hear(fmt.Sprint("you said message ", try))
		if !waited {
			break
		}
		if try == 5 { // the machine may have stood still for once
			t.Fatal("/stop waits for the missing message")
		}
	}
	p.stop()
}

// TestForgetWhileHeld checks that a held message is forgotten with the rest of its chat.
func TestForgetWhileHeld(t *testing.T) {
	t.Parallel()
	w, s := onWhatsAppOnly(t)
	o := s.chatPlatform.(*onWhatsApp)
	p := w.start()
	p.ready()
	s.ask("hello", "you said hello")
	o.Damage()
	s.say("one")
	s.until("the request for the message", func() bool { return o.Pending() == 0 })
	s.say("two")
	s.rows(2, "inbox WHERE TRUE") // with the first one
	p.kill()
	if out, err := w.gateway("memory", "forget", "1", "--yes"); err != nil {
		t.Fatal(out, err)
	}
	p = w.start()
	p.ready()
	s.ask("three", "you said three")
	if got := s.direct(); has(got, "you said two") {
		t.Errorf("Ann reads %q, and one of them is the answer to a forgotten message", got)
	}
	p.stop()
}
