//go:build unix

package e2e

import (
	"testing"

	"gateway/agent/llm/openai/openaitest"
	"gateway/channels/telegram/telegramtest"
)

// TestBudgetOfStrangers checks that the budget per person also applies to each stranger and each
// guest of a group, even after a kill.
func TestBudgetOfStrangers(t *testing.T) {
	t.Parallel()
	const spent = "the budget is spent"
	answer := func(openaitest.Request) openaitest.Reply {
		reply := say("done")
		reply.Usage = &openaitest.Usage{Prompt: 9_990, Completion: 10, Total: 10_000}
		return reply
	}
	w := newWorld(t, worldOptions{answer: answer,
		channel: quiet + "\n[budget]\nperson_tokens = 15000"})
	w.telegram.AddUser(telegramtest.User{ID: 61, First: "Mallory"})
	w.telegram.AddUser(telegramtest.User{ID: 62, First: "Trent"})
	w.telegram.AddGroup(teamID, "Team")
	p := w.start()
	p.ready()
	w.wantReply(61, "hello", "done")
	w.wantReply(61, "once more", spent)
	p.kill()
	p = w.start()
	p.ready()
	w.wantReply(61, "and now?", spent)
	w.wantReply(62, "hello", "done")
	for _, want := range []string{"done", spent} {
		told := w.said(teamID, want)
		w.telegram.Say(teamID, bobID, "@gateway_bot hello")
		w.await(want, func() bool { return w.said(teamID, want) > told })
	}
}
