package openai

import (
	"errors"
	"io"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// An answer collects the chunks of a stream.
type answer struct {
	text      strings.Builder
	reasoning strings.Builder
	think     thinkSplitter
	calls     callList
	extra     extraFields
	finish    string // reason in the provider's words; empty until it is known
	usage     llm.Usage
	early     bool // more has followed the reason
	begun     bool // a chunk had a choice
	size      int  // bytes of everything above
}

// maxAnswer is the greatest size of a streamed answer in bytes, much more than any model's longest.
const maxAnswer = 32 << 20

// errTooLong reports an answer that exceeds maxAnswer.
var errTooLong = errors.New("the answer has more than 32 MB")

// add adds the next chunk and returns the text that users may see.
func (a *answer) add(c *chunk) llm.Event {
	if c.Usage != nil {
		a.usage = c.Usage.neutral()
	}
	var event llm.Event
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue
		}
		a.begun = true
		if choice.Usage != nil {
			a.usage = choice.Usage.neutral()
		}
		// Perplexity repeats the answer so far beside each delta, as a message.
		d := choice.Delta
		if d == nil || d.size() == 0 && a.size == 0 {
			d = &choice.Message
		}
		a.early = a.early || a.finish != "" && d.size() > 0
		if choice.FinishReason != "" {
			a.finish = string(choice.FinishReason)
		}
		if isBroken(string(choice.Native)) { // OpenRouter calls this a "stop"
			a.finish = string(choice.Native)
		}
		a.addDelta(d, &event)
	}
	return event
}

func (a *answer) addDelta(d *delta, event *llm.Event) {
	a.size += d.size()
	a.reasoning.WriteString(string(d.Reasoning))
	if visible := d.Content + d.Refusal; visible != "" {
		a.show(a.think.push(string(visible)), event)
	}
	for _, c := range d.ToolCalls {
		if a.calls.add(c); len(a.calls) > wire.MaxCalls {
			break // call.next reports it
		}
	}
	a.extra.add(d.Extra)
}

func (a *answer) show(s split, event *llm.Event) {
	if s.retract {
		a.reasoning.WriteString(a.text.String())
		a.text.Reset()
		*event = llm.Event{Reset: true}
	}
	a.reasoning.WriteString(s.thought)
	a.text.WriteString(s.text)
	event.Text += s.text
}

// isComplete reports whether the answer is complete although its stream has ended with err. A
// reason in each chunk does not tell that.
func (a *answer) isComplete(err error) bool {
	return a.finish != "" && (!a.early || errors.Is(err, io.EOF))
}

// response returns the complete answer to req. It marks fields that only the provider understands
// with origin.
func (a *answer) response(req llm.Request, model, origin string) *llm.Response {
	calls := a.calls.calls()
	wire.SetIDs(calls, req.Messages)
	return &llm.Response{
		Message: llm.Message{
			Role:      llm.Assistant,
			Text:      a.text.String(),
			Reasoning: strings.TrimSpace(a.reasoning.String()),
			ToolCalls: calls,
			Extra:     markOrigin(a.extra.merged(), calls, origin),
		},
		Finish: finishOf(a.finish, len(calls) > 0),
		Usage:  a.usage,
		Model:  model,
	}
}

// isBroken reports whether a reason says that the provider broke off the answer, which is not
// complete then.
func isBroken(reason string) bool {
	switch reason {
	case "error", // OpenRouter, Mistral
		"insufficient_system_resource", // DeepSeek
		"abort",                        // vLLM, when it stops
		"network_error":                // GLM
		return true
	}
	// Gemini drops a call that the model has written wrongly: "function_call_filter:
	// MALFORMED_FUNCTION_CALL".
	return strings.HasPrefix(reason, "function_call_filter") || reason == "MALFORMED_FUNCTION_CALL"
}

// filterReasons are Gemini's own reasons for an answer that its filter broke off.
var filterReasons = []string{"safety", "recitation", "blocklist", "prohibited_content", "spii",
	"image_safety"}

func finishOf(reason string, calls bool) llm.Finish {
	reason = strings.ToLower(reason)
	switch reason {
	case "length", "max_tokens",
		"model_length",                  // Mistral
		"model_context_window_exceeded": // GLM
		return llm.FinishLength
	case "sensitive": // GLM
		return llm.FinishFiltered
	}
	if strings.HasPrefix(reason, "content_filter") || slices.Contains(filterReasons, reason) {
		return llm.FinishFiltered
	}
	if calls { // some providers send "stop" in this case
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}
