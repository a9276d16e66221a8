package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// Fields of [llm.Message.Extra]: what a model thought, signed by the provider, and the provider.
// While tools are used it wants its thoughts back unchanged.
const (
	thoughtsKey = "anthropic_thinking"
	originKey   = "anthropic_origin"
)

// An answer is put together from the events of a stream.
type answer struct {
	blocks  []*block
	usage   llm.Usage
	stop    anthropic.StopReason
	stopped bool
}

// A block is a part of an answer: text, a thought or a call.
type block struct {
	kind, id, name, data, signature string
	text                            strings.Builder
}

// add takes the next event and returns what people may see of it.
func (a *answer) add(e anthropic.MessageStreamEventUnion) string {
	switch e.Type {
	case "message_start":
		u := e.Message.Usage
		a.count(u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens)
	case "content_block_start":
		c := e.ContentBlock
		b := &block{kind: c.Type, id: c.ID, name: c.Name, data: c.Data, signature: c.Signature}
		b.text.WriteString(c.Text + c.Thinking)
		a.blocks = append(a.blocks, b)
		return c.Text
	case "content_block_delta":
		if len(a.blocks) == 0 {
			return ""
		}
		b := a.blocks[len(a.blocks)-1] // they come one after another
		b.text.WriteString(e.Delta.Text + e.Delta.Thinking + e.Delta.PartialJSON)
		b.signature += e.Delta.Signature
		return e.Delta.Text
	case "message_delta":
		a.stop = e.Delta.StopReason
		u := e.Usage // counts from the beginning; what is 0 may be left out
		a.count(u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens)
	case "message_stop":
		a.stopped = true
	}
	return ""
}

func (a *answer) count(input, written, read, output int64) {
	a.usage.Input = max(a.usage.Input, int(input+written+read))
	a.usage.Cached = max(a.usage.Cached, int(read))
	a.usage.Output = max(a.usage.Output, int(output))
}

// response returns the whole answer.
func (a *answer) response(m *Model) *llm.Response {
	msg := llm.Message{Role: llm.Assistant}
	var thoughts []any
	for _, b := range a.blocks {
		text := b.text.String()
		switch b.kind {
		case "text":
			msg.Text += text
		case "thinking":
			msg.Reasoning += text
			thoughts = append(thoughts, map[string]string{
				"type": "thinking", "thinking": text, "signature": b.signature})
		case "redacted_thinking":
			thoughts = append(thoughts, map[string]string{"type": b.kind, "data": b.data})
		case "tool_use":
			if strings.TrimSpace(text) == "" {
				text = "{}"
			}
			msg.ToolCalls = append(msg.ToolCalls,
				llm.ToolCall{ID: b.id, Name: b.name, Arguments: text})
		}
	}
	msg.Reasoning = strings.TrimSpace(msg.Reasoning)
	for i := range msg.ToolCalls {
		if msg.ToolCalls[i].ID == "" {
			msg.ToolCalls[i].ID = wire.NewID()
		}
	}
	if len(thoughts) > 0 {
		list, err1 := json.Marshal(thoughts)
		origin, err2 := json.Marshal(m.origin)
		if err1 == nil && err2 == nil { // texts can always be encoded
			msg.Extra = map[string]json.RawMessage{thoughtsKey: list, originKey: origin}
		}
	}
	return &llm.Response{Message: msg, Finish: a.finish(len(msg.ToolCalls) > 0),
		Usage: a.usage, Model: m.Name()}
}

// finish returns why the answer ended.
func (a *answer) finish(calls bool) llm.Finish {
	switch a.stop {
	case anthropic.StopReasonMaxTokens, "model_context_window_exceeded":
		return llm.FinishLength
	case anthropic.StopReasonRefusal:
		return llm.FinishFiltered
	}
	if calls {
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}
