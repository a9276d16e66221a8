package agent

import (
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/agent/llm/llmtest"
	"gateway/agent/tool"
	"gateway/agent/turn"
)

// An answer that the provider's filter breaks off does not pass for a whole one, and the model is
// not asked again.
func TestFilteredAnswers(t *testing.T) {
	t.Parallel()
	refused := turn.ErrorText(&llm.Error{Kind: llm.ContentRefused})
	for text, want := range map[string]string{"": refused, "Well, ": "Well, \n\n" + refused} {
		inWorld(t, func(w *world) {
			filtered := llmtest.Say(text)
			filtered.Finish = llm.FinishFiltered
			w.model.Queue(filtered)
			w.start()
			w.say("a", "hello")
			w.wantQuiet()
			w.wantAnswers("a", want)
			w.model.Queue(llmtest.Say("next"))
			w.say("a", "again")
			w.wantAnswers("a", want, "next")
		})
	}
}

// A call whose arguments the limit of an answer, or the provider's filter, has cut off is not made,
// not even if nothing of its arguments has come. The model learns why.
func TestCutOffCalls(t *testing.T) {
	t.Parallel()
	for arguments, finish := range map[string]llm.Finish{
		"": llm.FinishLength, " ": llm.FinishFiltered,
		`{"path":"a","content":"Once upon a`: llm.FinishLength,
	} {
		inWorld(t, func(w *world) {
			cut := llmtest.Call("look", `{}`)
			cut.Calls = append(cut.Calls, llm.ToolCall{Name: "write", Arguments: arguments})
			cut.Finish = finish
			w.tools(act("look", tool.Pure, always("seen")), act("write", tool.Once, always("written")))
			w.model.Queue(cut, llmtest.Say("in parts, then"))
			w.start()
			w.say("a", "hello")
			w.wantQuiet()
			w.wantAnswers("a", "in parts, then")
			messages := w.request(2).Messages
			look, write := messages[len(messages)-2].Text, messages[len(messages)-1].Text
			if look != "seen" || !strings.Contains(write, "limit of its length") {
				t.Errorf("%s: the results are %q and %q", arguments, look, write)
			}
		})
	}
}

// An answer that the limit cuts off goes on, also if texts before earlier calls were cut off.
func TestCutOffAfterCalls(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		cut := llmtest.Say("part ")
		cut.Finish = llm.FinishLength
		w.tools(act("look", tool.Pure, always("seen")))
		w.model.Queue(cut, cut, cut, llmtest.Call("look", `{}`), cut, llmtest.Say("and end"))
		w.start()
		w.say("a", "hello")
		w.wantQuiet()
		w.wantAnswers("a", "part and end")
	})
}

// An image that does not fit into the model's context window is left out when nothing else helps.
func TestImageLongerThanContext(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.withFiles()
		w.deps.Model = llmtest.Func("small", func(r llm.Request) llmtest.Step {
			if loaded, _ := images(r); loaded > 0 {
				return llmtest.Fail(llm.ContextTooLong)
			}
			return llmtest.Say("I can't see it.")
		})
		w.start()
		m := carrying(w.message("a", "look"))
		m.Attachments = append(m.Attachments, photo("a.png"))
		w.put(m)
		w.wantAnswers("a", "I can't see it.")
		w.say("a", "again")
		w.wantAnswers("a", "I can't see it.", "I can't see it.")
		w.wantQuiet()
	})
}
