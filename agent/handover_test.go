package agent

import (
	"testing"

	"gateway/agent/llm/llmtest"
	"gateway/agent/tool"
	"gateway/agent/turn"
)

// An orderly stop of the gateway is not a failed attempt. A turn is not given up because of such
// stops, however many there are.
func TestGracefulStopsAreNoAttempts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
		w.start()
		w.say("a", "hello")
		for range 2 * turn.MaxAttempts {
			w.must(w.stop())
			w.model.Queue(held(llmtest.Say("never"), make(chan struct{})))
			w.start()
			w.settle()
		}
		w.must(w.stop())
		w.model.Queue(llmtest.Say("at last"))
		w.start()
		w.wantQuiet()
		w.wantAnswers("a", "at last")
	})
}

// The rounds of a turn are counted over all its attempts.
func TestRoundsAreCountedOverAttempts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.opts.MaxRounds = 3
		w.tools(act("look", tool.Pure, always("seen")))
		w.leave("a", "hello", 1, intent("look"), result(0, "seen"), intent("look"), result(0, "seen"))
		w.model.Queue(uses("look"), llmtest.Say("all I know"))
		w.start()
		w.wantQuiet()
		w.wantAnswers("a", "all I know")
		if tools := w.request(2).Tools; len(tools) != 0 {
			t.Errorf("after the last round the model is offered %d tools", len(tools))
		}
	})
}
