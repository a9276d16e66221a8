package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// TestStopAnswers checks that a stopping or restarting gateway sends the answers in progress
// before it ends, even on platforms that need a connection for that. Messages that arrive
// meanwhile are not acknowledged; the next process answers them.
func TestStopAnswers(t *testing.T) {
	holds := map[string]*hold{"telegram": newHold(), "discord": newHold(), "whatsapp": newHold()}
	for _, h := range holds {
		defer h.release()
	}
	w, platforms := openPlatforms(t, "", func(r openaitest.Request) openaitest.Reply {
		if strings.Contains(lastWords(r), "hello") {
			holds[platformOf(r)].wait()
		}
		return answerConversations(r)
	})
	w.onAll(platforms, func(s *scene) {
		s.say("hello")
		until(s.t, "the model to be asked", holds[s.name].reached)
	})
	var stopping sync.WaitGroup
	stopping.Go(w.stop)
	discord := &scene{chatPlatform: platforms["discord"], t: t, name: "discord", w: w}
	discord.until("the end of receiving", func() bool { return !discord.ready() })
	platforms["whatsapp"].say("late")
	for _, h := range holds {
		h.release()
	}
	stopping.Wait()
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		s := &scene{chatPlatform: platforms[name], t: t, name: name, w: w}
		s.until("what was sent before the end", func() bool { return len(s.direct()) > 0 })
		if got := fmt.Sprint(s.direct()); !strings.Contains(got, "you said hello") {
			t.Errorf("%s: Ann reads %s", name, got)
		}
	}
	if has(platforms["whatsapp"].direct(), "late") {
		t.Error("a message was taken in while the gateway stopped")
	}
	w.run()
	whatsApp := &scene{chatPlatform: platforms["whatsapp"], t: t, name: "whatsapp", w: w}
	whatsApp.hear("you said late")
}
