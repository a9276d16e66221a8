package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"iter"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// A chunk is one frame of a streamed answer, or the complete answer of a provider that does not
// stream.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`

	// Other forms of an error, in a frame without choices:
	Object    text            `json:"object"`     // "error", in vLLM's form
	ErrorCode json.RawMessage `json:"error_code"` // FastChat
	BaseResp  struct {        // MiniMax
		Code    int    `json:"status_code"`
		Message string `json:"status_msg"`
	} `json:"base_resp"`
}

// failure returns the failure that the frame reports, or nil. raw is the JSON of the frame.
func (c *chunk) failure(raw []byte) *wire.Failure {
	switch {
	case !wire.IsEmpty(c.Error):
		return wire.ParseFailure(c.Error)
	case len(c.Choices) > 0:
	case c.BaseResp.Code != 0:
		return &wire.Failure{Message: c.BaseResp.Message}
	case c.Object == "error", !wire.IsEmpty(c.ErrorCode) && string(c.ErrorCode) != "0":
		return wire.ParseFailure(raw)
	}
	return nil
}

type choice struct {
	Index        int    `json:"index"`
	Delta        *delta `json:"delta"`
	Message      delta  `json:"message"`              // replaces Delta in a complete answer
	FinishReason text   `json:"finish_reason"`        // Portkey sends a number for Groq
	Native       text   `json:"native_finish_reason"` // OpenRouter: in the words of its provider
	Usage        *usage `json:"usage"`                // Moonshot sends the usage here
}

// A usage has the token counts under the names that different providers use.
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

// UnmarshalJSON implements [json.Unmarshaler]. It ignores counts that are not integers, and details
// that are not an object. An error here would cost the whole answer.
func (u *usage) UnmarshalJSON(b []byte) error {
	type plain usage
	return wire.IgnoreTypes(json.Unmarshal(b, (*plain)(u)))
}

// neutral returns u as an [llm.Usage]. Some providers count reasoning in the total only, not in the
// completion.
func (u *usage) neutral() llm.Usage {
	return llm.NewUsage(u.Prompt, max(u.Completion, u.Total-max(u.Prompt, 0)),
		max(u.Details.Cached, u.CacheHit, u.Cached, u.CacheRead))
}

// A delta is the part of a message that a frame adds.
type delta struct {
	Content   text
	Reasoning text
	Refusal   text
	ToolCalls []callDelta
	Extra     map[string]json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler]. It stores unknown fields in Extra.
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

// size returns how many bytes d adds to an answer.
func (d *delta) size() int {
	n := len(d.Content) + len(d.Reasoning) + len(d.Refusal) + sizeOf(d.Extra)
	for _, c := range d.ToolCalls {
		const overhead = 64 // each may begin a call
		n += overhead + len(c.ID) + len(c.Name) + len(c.Arguments) + sizeOf(c.Extra)
	}
	return n
}

// sizeOf returns the number of bytes of fields.
func sizeOf(extra map[string]json.RawMessage) (n int) {
	for name, value := range extra {
		n += len(name) + len(value)
	}
	return n
}

// thoughtsIn returns the thoughts in the content of a delta. Mistral sends them as parts of it.
func thoughtsIn(b []byte) (thoughts text) {
	var d struct {
		Content []struct{ Thinking text }
	}
	if json.Unmarshal(b, &d) == nil { // otherwise the content is text
		for _, part := range d.Content {
			thoughts += part.Thinking
		}
	}
	return thoughts
}

// A callDelta is the part of a tool call that a frame adds.
type callDelta struct {
	Index     *int // nil if the provider does not number its calls
	ID        string
	Name      string
	Arguments text
	Extra     map[string]json.RawMessage
}

// UnmarshalJSON implements [json.Unmarshaler]. It stores unknown fields in Extra.
func (c *callDelta) UnmarshalJSON(b []byte) error {
	var function struct {
		Name      string `json:"name"`
		Arguments text   `json:"arguments"`
	}
	var id text // NVIDIA and LM Studio send a number for some models
	err := fields(b, &c.Extra, func(name string) any {
		switch name {
		case "index":
			return &c.Index
		case "id":
			return &id
		case "function":
			return &function
		case "type":
			return ignored{}
		}
		return nil
	})
	c.ID, c.Name, c.Arguments = string(id), calledName(function.Name), function.Arguments
	return err
}

// calledName returns the name of a tool without marks of the model's own format, which some servers
// leave in it: a mark of a channel behind it, or the name space of all tools before it.
func calledName(written string) string {
	name, _, _ := strings.Cut(written, "<|")
	name = strings.TrimPrefix(strings.TrimSpace(name), "functions.")
	return cmp.Or(name, written)
}

// ignored is the type of known fields that are not used.
type ignored struct{}

// fields decodes the fields of a valid JSON object into the variables that target returns. It
// stores a field in extra if target returns nil and the field is not empty.
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

// objectFields yields the fields of a valid JSON object with their undecoded values, which are
// valid as long as b is. Decoding each delta into a map takes several times as long, and a model
// sends a delta for every few characters.
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

// valueLen returns the length in bytes of the JSON value at the beginning of b.
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
			return i // end of a number or literal
		default:
			continue
		}
		switch {
		case depth < 0:
			return i // the object ends with a number or literal
		case depth == 0 && !quoted:
			return i + 1
		}
	}
	return len(b)
}

// A text is a string that some providers send in another form: null, a list of parts with text, or,
// for arguments, an object.
type text string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *text) UnmarshalJSON(b []byte) error {
	*t = textOf(b)
	return nil
}

func textOf(raw json.RawMessage) text { return text(wire.TextOf(raw)) }
