package agent

import (
	"context"
	"testing"
	"time"

	"gateway/agent/llm/llmtest"
	"gateway/agent/tool"
	"gateway/agent/turn"
)

// A tool that ignores its context is abandoned after its timeout and after /stop. Its session
// continues.
func TestAbandonedTool(t *testing.T) {
	inWorld(t, func(w *world) {
		release := make(chan struct{})
		w.tools(act("stuck", tool.Once, func(context.Context) (string, error) {
			<-release
			return "too late", nil
		}))
		w.opts.ToolTimeout = time.Minute
		w.model.Queue(uses("stuck"), llmtest.Say("I can't know"), uses("stuck"), llmtest.Say("hi"))
		w.start()
		w.say("a", "hello")
		w.sleep(time.Minute + turn.AbandonAfter)
		w.wantAnswers("a", "I can't know")
		w.wantAsked(2, "user: hello", "assistant:  stuck({})",
			"tool: "+turn.ToolError(turn.ErrAbandoned, ""))
		w.say("a", "again")
		w.say("a", "/stop", "and now?")
		w.sleep(turn.AbandonAfter)
		w.wantAnswers("a", "I can't know", "Stopped.", "hi")
		if n := w.d.Stats().Abandoned; n != 2 {
			t.Errorf("%d calls are abandoned, want 2", n)
		}
		close(release)
		w.wantQuiet()
		if n := w.d.Stats().Abandoned; n != 0 {
			t.Errorf("%d calls are abandoned after they have ended", n)
		}
	})
}
