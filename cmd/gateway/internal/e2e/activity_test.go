//go:build unix

package e2e

import (
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// looks returns a model that lists the files once and answers after release is closed.
func looks(release <-chan struct{}) openaitest.Answer {
	return func(r openaitest.Request) openaitest.Reply {
		if r.Messages[len(r.Messages)-1].Role != "tool" {
			return openaitest.Reply{ToolCalls: []openaitest.ToolCall{
				{ID: "c1", Name: "list_dir", Arguments: `{"path":"."}`}}}
		}
		<-release
		return openaitest.Reply{Text: []string{"there is nothing"}}
	}
}

// TestActivity checks that one message shows the agent's activity and is then replaced by the
// answer.
func TestActivity(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]string{
		"compact": "looking through files", "full": "list_dir .",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			w := newWorld(t, worldOptions{answer: looks(release),
				channel: streaming + "\nreaction = \"\"",
				agent:   "activity = \"" + name + "\""})
			w.run()
			w.telegram.Say(annID, annID, "what is there?")
			w.await("the activity", func() bool { return heard(w, annID, shown) })
			close(release)
			w.await("the answer", func() bool { return heard(w, annID, "there is nothing") })
			w.await("nothing but the answer", func() bool { return len(w.texts(annID)) == 1 })
		})
	}
}

// TestActivityOff checks that only the answer is shown if activity is off, or if the platform
// can't edit messages.
func TestActivityOff(t *testing.T) {
	t.Parallel()
	for activity, channel := range map[string]string{"off": streaming, "full": quiet} {
		t.Run(activity, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			close(release)
			w := newWorld(t, worldOptions{answer: looks(release), channel: channel,
				agent: "activity = \"" + activity + "\"",
				onSend: func(s telegramtest.Sent) {
					if strings.Contains(s.Text, "looking") || strings.Contains(s.Text, "list_dir") {
						t.Errorf("the chat was told %q", s.Text)
					}
				}})
			w.run()
			w.telegram.Say(annID, annID, "what is there?")
			w.await("the answer", func() bool { return heard(w, annID, "there is nothing") })
		})
	}
}
