package agent

import (
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/tool"
)

// After a restart a turn still knows which foreign texts it has read.
func TestProvenanceAfterRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		calls := 0
		keep := counting("keep", tool.Once, &calls)
		keep.Lasts = func(tool.Call) bool { return true }
		w.tools(keep)
		page := llm.Message{Role: llm.ToolRole, ToolCallID: "left_0", Text: "keep this",
			Foreign: "the page `x`"}
		w.leave("a", "read it", 1, intent("keep"), page)
		w.model.Queue(uses("keep"), llmtest.Say("done"))
		w.start()
		w.settle()
		const why = "What it writes lasts, and this turn has read `the page 'x'`, which may"
		if got := w.outbox("a"); calls != 0 || len(got) != 1 || !strings.Contains(got[0].Text, why) {
			t.Fatalf("the tool was used %d times, and the person reads %+v", calls, got)
		}
		w.say("a", "/approve "+w.code())
		w.wantQuiet()
		if calls != 1 {
			t.Errorf("the tool was used %d times after the approval, want once", calls)
		}
	})
}
