//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
	"gateway/store"
)

// TestEndlessSilence checks that an answer with 100,000 silence markers, which a post to a hook
// may ask for, delays nobody.
func TestEndlessSilence(t *testing.T) {
	t.Parallel()
	const marks = 100_000
	answer := func(r openaitest.Request) openaitest.Reply {
		text := r.Messages[len(r.Messages)-1].Content
		switch {
		case strings.Contains(text, "first"):
			return say(strings.Repeat("HEARTBEAT_OK\n", marks))
		case strings.Contains(text, "last"):
			return say("The disk is full. " + strings.Repeat("HEARTBEAT_OK ", marks))
		}
		return repeat(r)
	}
	w := newWorld(t, worldOptions{channel: withHooks, answer: answer})
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "Anna"})
	w.telegram.AddUser(telegramtest.User{ID: annID, First: "Ann"})
	o := w.operate()
	for i, text := range []string{"first", "last"} {
		if code, body, err := o.post(t, o.hook("alerts", text, `{"text":"`+text+`"}`)); code != 202 {
			t.Fatalf("post = %d %s, %v", code, body, err)
		}
		w.eventually("the end of the turn", func(db *store.DB) bool {
			return w.count(db,
				"turns WHERE state = 'done' AND session = 'telegram/1#@hook-alerts'") == i+1
		})
		w.telegram.Say(annID, annID, "are you there?")
		w.await("an answer to Ann", func() bool { return w.telegram.SentCount(annID) == i+1 })
	}
	w.await("what is left of the answer", func() bool { return len(w.texts(1)) > 0 })
	if got := w.texts(1); !slices.Equal(got, []string{"The disk is full."}) {
		t.Errorf("%.100q was sent, want what is no mark", got)
	}
}
