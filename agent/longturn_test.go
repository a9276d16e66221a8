package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/prompt"
	"gateway/agent/tool"
	"gateway/memory"
	"gateway/store"
)

// strict returns a model with a window of so many tokens, which refuses a longer prompt. It answers
// others by step.
func strict(window int, step func(llm.Request) llmtest.Step) *llmtest.Model {
	return llmtest.Func("strict", func(r llm.Request) llmtest.Step {
		if prompt.Size(r) > window*prompt.BytesPerToken {
			return llmtest.Fail(llm.ContextTooLong)
		}
		return step(r)
	})
}

// A turn that writes many files has long calls with short results. It goes on when they no longer
// fit into the context window, like a turn with long results.
func TestManyLongCalls(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		written := 0
		write := act("write", tool.Once, func(context.Context) (string, error) {
			written++
			return "written", nil
		})
		write.Schema = json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)
		w.tools(write)
		w.opts.ContextWindow, w.opts.MaxOutput = 16384, 2048
		m := strict(16384, func(r llm.Request) llmtest.Step {
			if written == 20 {
				return llmtest.Say("all written")
			}
			text := fmt.Sprintf("file %d", written) + strings.Repeat(" words", 800)
			args, err := json.Marshal(map[string]string{"text": text})
			w.must(err)
			return llmtest.Call("write", string(args))
		})
		w.deps.Model = checked{m, t}
		w.start()
		w.say("a", "write twenty files")
		w.sleep(time.Minute)
		w.wantAnswers("a", "all written")
	})
}

// A message may be longer than the context window. The agent then answers its beginning and its
// end, and can read the rest from a file.
func TestMessageLongerThanTheWindow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.ContextWindow, w.opts.MaxOutput = 8192, 1024
		m := strict(8192, func(r llm.Request) llmtest.Step { return llmtest.Say("ok") })
		w.deps.Model = checked{m, t}
		w.start()
		w.say("a", "what is wrong here? "+strings.Repeat("a line of a log\n", 5000)+"the last line")
		w.say("a", "and now?")
		w.wantQuiet()
		w.wantAnswers("a", "ok", "ok")
		seen := m.Requests()[0].Messages[1].Text
		for _, part := range []string{"what is wrong here?", "the last line", "the whole is in media/"} {
			if !strings.Contains(seen, part) {
				t.Errorf("the model does not see %q", part)
			}
		}
	})
}

// However many facts are pinned, the conversation goes on. The prompt holds the most important
// pinned facts, and says that there are more.
func TestTooManyPinnedFacts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		m := strict(65536, func(r llm.Request) llmtest.Step { return llmtest.Say("ok") })
		w.deps.Model = checked{m, t}
		w.start()
		w.tx(func(tx *store.Tx) error {
			space := w.deps.Memory.In(memory.OfChat(at("a")))
			for i := range 300 {
				f := memory.Fact{Key: fmt.Sprintf("fact %d", i), Pinned: true, Importance: 2,
					Value: strings.Repeat("something that somebody wanted to be kept ", 20)}
				if i == 150 {
					f.Importance = 5
				}
				if err := space.Set(tx, f); err != nil {
					return err
				}
			}
			return nil
		})
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", "ok")
		system := m.Requests()[0].Messages[0].Text
		if !strings.Contains(system, "- fact 150: ") || !strings.Contains(system, "more are left out") {
			t.Errorf("the prompt lacks the most important fact, or does not say that there are more")
		}
	})
}
