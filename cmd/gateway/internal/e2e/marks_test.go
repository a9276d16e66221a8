package e2e

import (
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// TestMarksOnPlatforms checks that a message has a reaction until its answer arrives, and that
// messages of strangers never get a reaction.
func TestMarksOnPlatforms(t *testing.T) {
	t.Parallel()
	holds := map[string]*hold{"telegram": newHold(), "discord": newHold(), "whatsapp": newHold()}
	for _, h := range holds {
		defer h.release()
	}
	w, platforms := openPlatforms(t, "streaming = true\n",
		func(r openaitest.Request) openaitest.Reply {
			holds[platformOf(r)].wait()
			return answerConversations(r)
		})
	w.onAll(platforms, func(s *scene) {
		stranger := s.sayStranger("let me in")
		id := s.say("hello")
		s.until("marks", func() bool {
			marks := s.marks(false, id)
			return strings.Contains(marks, "👀") && strings.Contains(marks, "typing") &&
				(s.name != "whatsapp" || strings.Contains(marks, "read"))
		})
		holds[s.name].release()
		s.hear("you said hello")
		s.until("no reaction", func() bool { return !strings.Contains(s.marks(false, id), "👀") })
		s.until("a code", func() bool { return has(s.stranger(), "pairing code") })
		if marks := s.marks(true, stranger); marks != "" {
			s.t.Errorf("%s: a stranger's message has %q", s.name, marks)
		}
	})
}

// TestTwoAccounts checks that two accounts on one platform have their own people and settings.
func TestTwoAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	other := newWorld(t, worldOptions{token: "654321:OTHER"}) // only its Telegram is used
	w.configure(quiet + "\n[channels.second]\ntype = \"telegram\"\ntoken = \"654321:OTHER\"\n" +
		"access = \"allow\"\nallow = [8]\nreaction = \"\"\napi_url = \"" + other.url + "\"")
	w.run()
	for _, user := range []int64{7, 8} {
		w.telegram.Say(user, user, "to the first")
		other.telegram.Say(user, user, "to the second")
	}
	w.await("answers", func() bool { return len(w.texts(7)) == 1 && len(w.texts(8)) == 1 })
	other.await("an answer", func() bool { return len(other.texts(8)) == 1 })
	if got := other.texts(7); len(got) != 0 {
		t.Errorf("somebody who is let in at the first bot reads %q from the second", got)
	}
	if got := other.texts(8)[0]; got != "you said to the second" {
		t.Errorf("the second bot says %q", got)
	}
}
