package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// Fields of [llm.Message.Extra]: the model's thoughts, signed by the provider, and the provider's
// host. During a series of tool calls the provider needs its thoughts back unchanged, and in their
// places. If thoughts stand between texts and calls, the list has these, too.
const (
	thoughtsKey = "anthropic_thinking"
	originKey   = "anthropic_origin"
)

// An event is one event of a stream. Its type determines which fields are set.
type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage usage `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"` // empty, except in streams of some proxies
	} `json:"content_block"`
	Delta struct {
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		PartialJSON string `json:"partial_json"`
		Signature   string `json:"signature"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage usage           `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// A usage has token counts. The three counts of the prompt do not overlap.
type usage struct {
	Input   int `json:"input_tokens"`
	Written int `json:"cache_creation_input_tokens"`
	Read    int `json:"cache_read_input_tokens"`
	Output  int `json:"output_tokens"`
}

// UnmarshalJSON implements [json.Unmarshaler]. It ignores counts that are not integers. An error
// here would cost the whole answer.
func (u *usage) UnmarshalJSON(b []byte) error {
	type plain usage
	return wire.IgnoreTypes(json.Unmarshal(b, (*plain)(u)))
}

// An answer collects the events of a stream.
type answer struct {
	parts   []*part
	byIndex map[int]*part // the last part with each index
	usage   llm.Usage
	stop    string
	size    int // bytes of all parts
	calls   int // number of tool calls
}

// maxAnswer is the greatest size of an answer in bytes, much more than any model's longest.
const maxAnswer = 32 << 20

// partSize is about the memory that a part takes without its texts, in bytes.
const partSize = 256

// errTooLong reports an answer that exceeds maxAnswer.
var errTooLong = errors.New("the answer has more than 32 MB")

// A part of an answer is text, a thought or a tool call.
type part struct {
	kind, id, name, data, input string
	text, signature             strings.Builder
}

// add adds the next event and returns the text that users may see.
func (a *answer) add(e *event) (string, error) {
	switch e.Type {
	case "message_start":
		a.count(e.Message.Usage)
	case "content_block_start":
		c := e.ContentBlock
		p := a.begin(part{kind: c.Type, id: c.ID, name: c.Name, data: c.Data})
		if a.byIndex == nil {
			a.byIndex = make(map[int]*part)
		}
		a.byIndex[e.Index] = p
		if c.Type == "tool_use" {
			if a.calls++; a.calls > wire.MaxCalls {
				return "", wire.ErrManyCalls
			}
			if !wire.IsEmpty(c.Input) {
				p.input = wire.TextOf(c.Input)
				a.size += len(p.input)
			}
		}
		return c.Text, a.write(p, c.Text+c.Thinking, c.Signature)
	case "content_block_delta":
		d := e.Delta
		p := a.partOf(e)
		if p == nil {
			return "", nil
		}
		return d.Text, a.write(p, d.Text+d.Thinking+d.PartialJSON, d.Signature)
	case "message_delta":
		a.stop = cmp.Or(e.Delta.StopReason, a.stop) // another such event may have only the usage
		a.count(e.Usage)                            // cumulative; it may have only the output
	}
	return "", nil
}

// begin adds an empty part.
func (a *answer) begin(p part) *part {
	a.parts = append(a.parts, &p)
	a.size += len(p.kind) + len(p.id) + len(p.name) + len(p.data) + partSize
	return &p
}

// partOf returns the part that a delta continues, or nil if there is none. With some proxies, parts
// overlap, and a text has the index of the call before it.
func (a *answer) partOf(e *event) *part {
	var kind string
	switch d := e.Delta; {
	case d.Text != "":
		kind = "text"
	case d.Thinking != "", d.Signature != "":
		kind = "thinking"
	case d.PartialJSON != "":
		kind = "tool_use"
	default:
		return nil
	}
	if p := a.byIndex[e.Index]; p != nil && p.accepts(kind) {
		return p
	}
	if n := len(a.parts); n > 0 && a.parts[n-1].accepts(kind) {
		return a.parts[n-1]
	}
	if kind == "tool_use" {
		return nil
	}
	return a.begin(part{kind: kind})
}

// accepts reports whether a delta of that kind can continue p.
func (p *part) accepts(kind string) bool {
	switch p.kind {
	case "text", "thinking", "tool_use":
		return p.kind == kind
	}
	return true
}

// write appends to p.
func (a *answer) write(p *part, text, signature string) error {
	p.text.WriteString(text)
	p.signature.WriteString(signature)
	if a.size += len(text) + len(signature); a.size > maxAnswer {
		return errTooLong
	}
	return nil
}

func (a *answer) count(u usage) {
	fresh, cached := llm.NewUsage(u.Input, u.Output, 0), llm.NewUsage(u.Written, 0, u.Read)
	a.usage.Input = max(a.usage.Input, fresh.Input+cached.Input+cached.Cached)
	a.usage.Cached = max(a.usage.Cached, cached.Cached)
	a.usage.Output = max(a.usage.Output, fresh.Output)
}

// response returns the complete answer to req.
func (a *answer) response(req llm.Request, m *Model) *llm.Response {
	msg := llm.Message{Role: llm.Assistant}
	var all, thoughts []block
	mixed := false // a thought follows something else
	for _, p := range a.parts {
		text := p.text.String()
		switch p.kind {
		case "text":
			msg.Text += text
			all = append(all, textBlock(text))
		case "thinking", "redacted_thinking":
			mixed = mixed || len(all) > len(thoughts)
			b := block{Type: p.kind, Data: p.data}
			if p.kind == "thinking" {
				msg.Reasoning += text
				b.Thinking, b.Signature = &text, p.signature.String()
			}
			thoughts, all = append(thoughts, b), append(all, b)
		case "tool_use":
			if strings.TrimSpace(text) == "" {
				text = p.input
			}
			if text == "" && a.finish(true) == llm.FinishToolCalls {
				text = "{}"
			}
			msg.ToolCalls = append(msg.ToolCalls,
				llm.ToolCall{ID: p.id, Name: p.name, Arguments: wire.OneObject(text)})
			all = append(all, block{Type: p.kind})
		}
	}
	msg.Reasoning = strings.TrimSpace(msg.Reasoning)
	wire.SetIDs(msg.ToolCalls, req.Messages)
	calls := msg.ToolCalls
	for i := range all {
		if all[i].Type == "tool_use" {
			all[i].ID, calls = calls[0].ID, calls[1:]
		}
	}
	if len(thoughts) > 0 {
		if mixed { // the message itself does not have the order
			thoughts = all
		}
		list, err1 := json.Marshal(thoughts)
		origin, err2 := json.Marshal(m.origin)
		if err1 == nil && err2 == nil { // encoding strings can't fail
			msg.Extra = map[string]json.RawMessage{thoughtsKey: list, originKey: origin}
		}
	}
	return &llm.Response{Message: msg, Finish: a.finish(len(msg.ToolCalls) > 0),
		Usage: a.usage, Model: m.Name()}
}

// finish returns why the answer ended.
func (a *answer) finish(calls bool) llm.Finish {
	switch a.stop {
	case "max_tokens", "model_context_window_exceeded":
		return llm.FinishLength
	case "refusal":
		return llm.FinishFiltered
	}
	if calls {
		return llm.FinishToolCalls
	}
	return llm.FinishStop
}
