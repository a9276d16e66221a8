package main

import (
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// A group that is listed stays so when Telegram makes a supergroup of it, which has another id; an
// answer that is on its way follows it there.
func TestGroupBecomesSupergroup(t *testing.T) {
	const group, supergroup = -42, -1009876543210
	hold := newHold()
	answer := func(r openaitest.Request) openaitest.Reply {
		hold.wait()
		return repeat(r)
	}
	w := newWorld(t, worldOptions{answer: answer,
		channel: "access = \"allow\"\ngroups = [-42]\nstreaming = false"})
	w.telegram.AddGroup(group, "Garden")
	stop := w.run()
	w.telegram.Say(group, bobID, "@gateway_bot before")
	until(t, "the model", hold.reached)
	w.telegram.Migrate(group, supergroup)
	hold.release()
	w.await("the answer", func() bool { return heard(w, supergroup, "before") })
	w.telegram.Say(supergroup, bobID, "@gateway_bot after")
	w.await("an answer", func() bool { return heard(w, supergroup, "after") })
	stop()
	w.run()
	w.telegram.Say(supergroup, bobID, "@gateway_bot after a restart")
	w.await("an answer", func() bool { return heard(w, supergroup, "after a restart") })
}

// heard reports whether the bot has said something in a chat.
func heard(w *world, chat int64, text string) bool {
	texts := w.texts(chat)
	return len(texts) > 0 && strings.Contains(texts[len(texts)-1], text)
}
