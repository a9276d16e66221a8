//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"testing"
)

// A lossScene is a scene on WhatsApp in which the gateway can't decrypt some messages at first. The
// agent repeats what it is told.
type lossScene struct {
	*scene
	o *onWhatsApp
	p *process
}

// newLossScene returns a lossScene in which the gateway has answered "hello".
func newLossScene(t *testing.T) *lossScene {
	t.Helper()
	w := newWorld(t, worldOptions{answer: answerConversations, agent: "queue_mode = \"followup\""})
	o := openWhatsApp(t, w.home)
	w.configure(quiet + "\n[channels.whatsapp]\n" + streaming + "\nstreaming = false\n" + o.config())
	s := &lossScene{scene: &scene{chatPlatform: o, t: t, name: "whatsapp", w: w}, o: o}
	s.start()
	s.ask("hello", "you said hello")
	return s
}

// start starts the gateway.
func (s *lossScene) start() {
	s.t.Helper()
	s.p = s.w.start()
	s.p.ready()
}

// tell makes Ann write a text, and waits until the gateway has acknowledged it.
func (s *lossScene) tell(text string) {
	s.t.Helper()
	s.say(text)
	s.until("the acknowledgement", func() bool { return s.o.Pending() == 0 })
}

// lose makes Ann write a text that the gateway can't decrypt. Her phone sends it again when resend
// is called.
func (s *lossScene) lose(text string) (resend func()) {
	s.t.Helper()
	resend = s.o.Damage()
	s.tell(text)
	return resend
}

// late returns how often messages have waited in vain.
func (s *lossScene) late() int {
	return s.p.logged("a message can't be decrypted; newer ones no longer wait for it")
}

// TestMessageSentAgain checks that a message that can't be decrypted is answered before the later
// ones of its sender if their phone sends it again soon.
func TestMessageSentAgain(t *testing.T) {
	t.Parallel()
	s := newLossScene(t)
	for try := range 5 {
		before, late := len(s.direct()), s.late()
		var texts, want []string
		for n := range 3 {
			texts = append(texts, fmt.Sprintf("message %d.%d", try, n))
			want = append(want, "you said "+texts[n])
		}
		resend := s.lose(texts[0])
		s.tell(texts[1])
		s.tell(texts[2])
		resend()
		s.until("three answers", func() bool { return len(s.direct()) == before+3 })
		if s.late() > late {
			continue // the machine stood still for too long
		}
		if got := s.direct()[before:]; !slices.Equal(got, want) {
			t.Errorf("Ann reads %q, want %q", got, want)
		}
		s.p.stop()
		return
	}
	t.Error("each time the messages have waited in vain")
}

// TestKillWhileHeld kills the gateway while it holds messages. The next process answers them, and
// the missing one when it comes. Each is answered once.
func TestKillWhileHeld(t *testing.T) {
	t.Parallel()
	s := newLossScene(t)
	resend := s.lose("one")
	s.tell("two")
	s.tell("three")
	s.p.kill()
	s.start()
	s.until("two answers", func() bool { return len(s.direct()) == 3 })
	resend()
	s.until("the third answer", func() bool { return len(s.direct()) == 4 })
	want := []string{"you said hello", "you said two", "you said three", "you said one"}
	if got := s.direct(); !slices.Equal(got, want) {
		t.Errorf("Ann reads %q, want %q", got, want)
	}
	s.rows(0, "inbox WHERE state = 'held'")
	s.p.stop()
}

// TestStopWhileHeld checks that /stop does not wait for a missing message.
func TestStopWhileHeld(t *testing.T) {
	t.Parallel()
	s := newLossScene(t)
	for try := range 5 {
		before, late := len(s.direct()), s.late()
		resend := s.lose(fmt.Sprint("message ", try))
		s.say("/stop")
		s.until("the answer", func() bool { return len(s.direct()) > before })
		waited := s.late() > late
		resend()
		s.hear(fmt.Sprint("you said message ", try))
		if !waited { // otherwise the machine may have stood still for too long
			s.p.stop()
			return
		}
	}
	t.Error("/stop waits for the missing message")
}

// TestForgetWhileHeld checks that a held message is forgotten with the rest of its chat.
func TestForgetWhileHeld(t *testing.T) {
	t.Parallel()
	s := newLossScene(t)
	s.lose("one")
	s.tell("two")
	s.p.kill()
	if out, err := s.w.gateway("memory", "forget", "1", "--yes"); err != nil {
		t.Fatal(out, err)
	}
	s.start()
	s.ask("three", "you said three")
	if got := s.direct(); has(got, "you said two") {
		t.Errorf("Ann reads %q, and one of them is the answer to a forgotten message", got)
	}
	s.p.stop()
}
