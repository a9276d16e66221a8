package agent

import (
	"fmt"
	"testing"

	"gateway/agent/llm/llmtest"
	"gateway/agent/tools/ask"
)

// A call that must be approved, and that then waits itself, waits twice.
func TestApprovedCallThatWaits(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("spawn, restart ", restart), func(t *testing.T) {
			inWorld(t, func(w *world) {
				sub := w.spawning()
				w.opts.Rules = askFirst("spawn")
				release := make(chan struct{})
				sub.Queue(held(llmtest.Say("it is blue"), release))
				w.model.Queue(spawns(true, "look"), llmtest.Say("Blue."))
				w.start()
				w.say("a", "which colour?")
				w.say("a", "/approve "+w.code())
				if restart {
					w.must(w.stop())
					sub.Queue(llmtest.Say("it is blue"))
					w.start()
				}
				close(release)
				w.wantQuiet()
				if got := w.request(2).Messages[3].Text; got != "it is blue" {
					t.Errorf("the result is %q, want the outcome", got)
				}
			})
		})
		t.Run(fmt.Sprint("ask, restart ", restart), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.tools(ask.New())
				w.opts.Rules = askFirst("ask")
				w.model.Queue(asksFor("Which?", "red", "blue"), llmtest.Say("Blue."))
				w.start()
				w.say("a", "paint it")
				w.say("a", "/approve "+w.code())
				if restart {
					w.restart()
				}
				w.say("a", "2")
				w.wantQuiet()
				if got := w.request(2).Messages[3].Text; got != "The user chose: blue" {
					t.Errorf("the result is %q, want the answer", got)
				}
			})
		})
	}
}
