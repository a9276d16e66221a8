package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// A chunk is one frame of a streamed answer, or a whole answer from a provider
// that does not stream.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        delta  `json:"delta"`
	Message      delta  `json:"message"` // instead of Delta in a whole answer
	FinishReason string `json:"finish_reason"`
	Usage        *usage `json:"usage"` // where Moonshot has it
}

// usage holds the token counts in all spellings that providers have for them.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CacheHit  int `json:"prompt_cache_hit_tokens"` // DeepSeek
	Cached    int `json:"cached_tokens"`           // Moonshot
	CacheRead int `json:"cache_read_input_tokens"` // Anthropic
}

// neutral returns u in the gateway's terms. Some providers leave reasoning out
// of the completion but have it in the total.
func (u *usage) neutral() llm.Usage {
	return llm.Usage{
		Input:  u.Prompt,
		Output: max(u.Completion, u.Total-u.Prompt),
		Cached: max(u.Details.Cached, u.CacheHit, u.Cached, u.CacheRead),
	}
}

// A delta is what a frame adds to the message.
type delta struct {
	Content   text
	Reasoning text
	Refusal   text
	ToolCalls []callDelta
	Extra     map[string]json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler]. Fields that it does not know go to Extra.
func (d *delta) UnmarshalJSON(b []byte) error {
	var alias text // OpenRouter sends the reasoning under both names
	err := fields(b, &d.Extra, func(name string) any {
		switch name {
		case "content":
			return &d.Content
		case "reasoning_content":
			return &d.Reasoning
		case "reasoning":
			return &alias
		case "refusal":
			return &d.Refusal
		case "tool_calls":
			return &d.ToolCalls
		case "role", "name", "function_call", "annotations", "audio":
			return ignored{}
		}
		return nil
	})
	if d.Reasoning == "" {
		d.Reasoning = alias
	}
	if d.Reasoning == "" && bytes.Contains(b, []byte(`"thinking"`)) {
		d.Reasoning = thoughtsIn(b)
	}
	return err
}

// thoughtsIn returns the thoughts that Mistral has among the parts of the content of a delta.
func thoughtsIn(b []byte) (thoughts text) {
	var d struct {
		Content []struct{ Thinking text }
	}
	if json.Unmarshal(b, &d) == nil { // if not, they are words of the text
		for _, part := range d.Content {
			thoughts += part.Thinking
		}
	}
	return thoughts
}

// A callDelta is what a frame adds to a tool call.
type callDelta struct {
	Index     *int // nil if the provider does not number its calls
	ID        string
	Name      string
	Arguments text
	Extra     map[string]json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler]. Fields that it does not know go to Extra.
func (c *callDelta) UnmarshalJSON(b []byte) error {
	var function struct {
		Name      string `json:"name"`
		Arguments text   `json:"arguments"`
	}
	err := fields(b, &c.Extra, func(name string) any {
		switch name {
		case "index":
			return &c.Index
		case "id":
			return &c.ID
		case "function":
			return &function
		case "type":
			return ignored{}
		}
		return nil
	})
	c.Name, c.Arguments = function.Name, function.Arguments
	return err
}

// ignored stands for a field that is known and of no use.
type ignored struct{}

// fields decodes the valid JSON object b, each field to where target says; those for
// which it returns nil go to extra, unless they are empty.
func fields(b []byte, extra *map[string]json.RawMessage, target func(name string) any) error {
	if string(b) == "null" {
		return nil
	}
	if b[0] != '{' {
		return errors.New("not an object")
	}
	for name, raw := range objectFields(b) {
		switch to := target(name).(type) {
		case ignored:
		case nil:
			if !wire.IsEmpty(raw) {
				if *extra == nil {
					*extra = make(map[string]json.RawMessage)
				}
				(*extra)[name] = bytes.Clone(raw)
			}
		case *text:
			*to = textOf(raw)
		default:
			if err := json.Unmarshal(raw, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// objectFields yields the fields of a valid JSON object, their values undecoded and
// valid as long as b is. Decoding each delta to a map takes several times as long, and this
// is done for every few characters that a model writes.
func objectFields(b []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for {
			quote := bytes.IndexByte(b, '"')
			if quote < 0 {
				return
			}
			b = b[quote:]
			n := valueLen(b)
			name := string(textOf(b[:n]))
			b = bytes.TrimLeft(b[n:], ": \t\r\n")
			n = valueLen(b)
			if !yield(name, b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// valueLen returns the length of the JSON value at the beginning of b.
func valueLen(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
			continue
		case c == '"':
			quoted = !quoted
		case quoted:
			continue
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case depth == 0 && strings.IndexByte(", \t\r\n", c) >= 0:
			return i // of a number or literal
		default:
			continue
		}
		switch {
		case depth < 0:
			return i // a number or literal at the end of its object
		case depth == 0 && !quoted:
			return i + 1
		}
	}
	return len(b)
}

// A text is a string that some providers send as something else: as null, as
// a list of parts with a text each, or, in place of arguments, as an object.
type text string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *text) UnmarshalJSON(b []byte) error {
	*t = textOf(b)
	return nil
}

func textOf(raw json.RawMessage) text { return text(wire.TextOf(raw)) }
