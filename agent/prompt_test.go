package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/prompt"
	"gateway/agent/tool"
)

// document writes a file into the workspace.
func (w *world) document(name, text string) {
	w.t.Helper()
	w.must(os.WriteFile(filepath.Join(filepath.Dir(w.path), name), []byte(text), 0o600))
}

// Pitfall: "a time in the system prompt defeats the provider's prompt cache on every turn".
func TestSystemPromptStaysTheSame(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		m := llmtest.Func("echo", echo)
		w.deps.Model = m
		w.document("AGENTS.md", "Be kind.")
		days := 0
		w.opts.Now = func() time.Time { return time.Now().AddDate(0, 0, days) }
		w.start()
		for i := range 10 {
			w.say("a", fmt.Sprint("message ", i))
			w.sleep(time.Minute)
			days++
			if i == 4 {
				w.must(w.stop())
				w.start()
			}
		}
		w.document("AGENTS.md", "Be brief.")
		w.say("a", "the last one")
		w.sleep(time.Minute)
		requests := m.Requests()
		first := requests[0].Messages[0]
		for i, r := range requests[:10] {
			if got := r.Messages[0]; got.Text != first.Text || got.Role != llm.System {
				t.Errorf("the system prompt of turn %d differs from the first", i+1)
			}
		}
		last := requests[10].Messages[0].Text
		if last != strings.Replace(first.Text, "Be kind.", "Be brief.", 1) || last == first.Text {
			t.Error("the system prompt does not follow a change of AGENTS.md, or of that alone")
		}
	})
}

// Each request of a session begins with the content of the request before it, so that the
// provider's cache hits. If the transcript is too long, half of it is removed at once, so that
// the beginning then stays the same for many turns.
func TestPromptBeginsStaySame(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const turns = 120
		m := llmtest.Func("long", func(r llm.Request) llmtest.Step {
			if r.Messages[len(r.Messages)-1].Role == llm.User && len(r.Messages)%3 == 0 {
				return uses("look")
			}
			return llmtest.Say(strings.Repeat("answer ", 20))
		})
		w.deps.Model = checked{m, t}
		w.tools(act("look", tool.Pure, always(strings.Repeat("seen ", 40))))
		w.opts.ContextWindow, w.opts.MaxOutput = 8192, 1024
		w.start()
		for i := range turns {
			w.say("a", fmt.Sprint("message ", i))
		}
		var before []llm.Message
		trims := 0
		for i, r := range m.Requests() {
			sent := r.Messages[1:]
			if n := len(before); len(sent) < n || !slices.Equal(lines(sent[:n]), lines(before)) {
				if trims++; sent[0].Role != llm.User {
					t.Errorf("request %d begins with role %s", i+1, sent[0].Role)
				}
			}
			size := prompt.TextSize(r.Messages) + prompt.ToolsSize(r.Tools)
			if most := (8192 - 1024) * prompt.BytesPerToken; size > most {
				t.Errorf("request %d has %d bytes, want %d at most", i+1, size, most)
			}
			before = sent
		}
		if trims < 2 || trims > turns/10 {
			t.Errorf("the begin of the prompt has changed %d times in %d turns", trims, turns)
		}
		if n := w.info("a").Messages; n < 2*turns {
			t.Errorf("the transcript holds %d messages, want all of %d turns", n, turns)
		}
	})
}
