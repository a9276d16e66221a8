//go:build unix

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gateway/agent/llm/openai/openaitest"
)

// TestKillStatus kills a gateway that has just removed its status from a chat, because the turn
// waits for an approval. WhatsApp accepts edits of a removed message, and shows nothing. So the
// answer must be a message of its own.
func TestKillStatus(t *testing.T) {
	t.Parallel()
	var o *onWhatsApp
	reads := func(part string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := o.Wait(ctx, func() bool {
			return slices.ContainsFunc(o.ann.Texts(), func(s string) bool {
				return strings.Contains(s, part)
			})
		})
		if err != nil {
			t.Errorf("Ann reads %q, want %q: %v", o.ann.Texts(), part, err)
		}
	}
	call := func(id, name, arguments string) openaitest.Reply {
		return openaitest.Reply{ToolCalls: []openaitest.ToolCall{
			{ID: id, Name: name, Arguments: arguments}}}
	}
	answer := func(r openaitest.Request) openaitest.Reply {
		switch r.Messages[len(r.Messages)-1].ToolCallID {
		case "":
			return call("call_1", "time", "{}")
		case "call_1":
			reads("looking at the clock")
			return call("call_2", "exec", `{"command":"echo finished"}`)
		}
		return say("this is the answer")
	}
	w := newWorld(t, worldOptions{sandbox: "auto", answer: answer})
	o = openWhatsApp(t, w.home)
	w.configure(quiet + "\n[channels.whatsapp]\n" + streaming + "\nstreaming = true\n" + o.config() +
		"[tools.exec]\nowner = \"ask\"")
	p := w.start("GATEWAY_FAULT=removed:1")
	p.ready()
	o.say("please run it")
	until(t, "the end of the gateway", p.done)
	p = w.start()
	p.ready()
	reads("Approve")
	o.press("Approve")
	reads("this is the answer")
	p.stop()
}
