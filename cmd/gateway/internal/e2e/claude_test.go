//go:build unix

package e2e

import (
	"strings"
	"testing"

	"gateway/agent/llm/anthropic/anthropictest"
)

// TestClaude checks that Claude answers through its own API, uses tools and its prompt cache, and
// continues the conversation after a crash.
func TestClaude(t *testing.T) {
	t.Parallel()
	const key = "key-of-claude"
	claude := anthropictest.Start(t, key, func(r anthropictest.Request) anthropictest.Reply {
		last := r.Messages[len(r.Messages)-1].Content
		switch {
		case last[0].Type == "tool_result":
			return anthropictest.Reply{Text: "the tool says " + string(last[0].Content)}
		case strings.Contains(last[len(last)-1].Text, "what files"):
			return anthropictest.Reply{Thinking: "a folder", Calls: []anthropictest.Call{
				{ID: "toolu_1", Name: "list_dir", Input: `{"path":"."}`}}}
		}
		return anthropictest.Reply{Text: "you said " + last[len(last)-1].Text}
	})
	w := newWorld(t, worldOptions{answer: repeat})
	w.withoutModel()
	variables := []string{"ANTHROPIC_API_KEY=" + key, "ANTHROPIC_BASE_URL=" + claude.URL}
	p := w.start(variables...)
	p.ready()
	w.telegram.Say(annID, annID, "what files are there")
	w.await("an answer with a tool", func() bool {
		texts := w.texts(annID)
		return len(texts) == 1 && strings.HasPrefix(texts[0], "the tool says")
	})
	p.kill()
	w.start(variables...).ready()
	w.answers(annID, "hello") // the first answer may come twice: it may not be marked as sent

	requests := claude.Requests()
	last := requests[len(requests)-1]
	if last.Model != "claude-sonnet-5-5" || len(last.Messages) != 5 ||
		last.Messages[1].Content[0].Signature != "signed:a folder" {
		t.Errorf("after the crash %s was asked with %+v", last.Model, last.Messages)
	}
	if last.CacheRead < len(last.Body)/2 {
		t.Errorf("%d of %d characters came from the cache", last.CacheRead, len(last.Body))
	}
}
