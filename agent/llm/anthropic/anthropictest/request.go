package anthropictest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// A Request is a client's request.
type Request struct {
	Model     string          `json:"model"`
	MaxTokens int             `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	System    []Block         `json:"system"`
	Messages  []Message       `json:"messages"`
	Tools     []Tool          `json:"tools"`
	Other     json.RawMessage `json:"-"` // all other fields

	Header http.Header `json:"-"`
	Body   []byte      `json:"-"`

	CacheRead int `json:"-"` // characters found in the cache

	marked []string // the marked beginnings of the prompt
}

// A Message is one message of a conversation.
type Message struct {
	Role    string  `json:"role"`
	Content []Block `json:"content"`
}

// A Block is a part of a message.
type Block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	Source    *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      []byte `json:"data"`
	} `json:"source"`
	IsError      bool            `json:"is_error"`
	CacheControl json.RawMessage `json:"cache_control"`
}

// A Tool is a tool that the model may use.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl json.RawMessage `json:"cache_control"`
}

// others are the documented fields that Request does not have.
var others = map[string]bool{"temperature": true, "top_p": true, "top_k": true, "thinking": true,
	"output_config": true, "metadata": true, "stop_sequences": true, "tool_choice": true,
	"service_tier": true}

var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	callID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// parse parses a request. problem is the reason why the API refuses it, or "".
func parse(body []byte) (req Request, problem string) {
	req.Body = body
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return req, "the body is not JSON: " + err.Error()
	}
	other := make(map[string]json.RawMessage)
	known := Request{}
	for name, value := range fields {
		switch name {
		case "model", "max_tokens", "stream", "system", "messages", "tools":
		default:
			if !others[name] {
				return req, name + ": Extra inputs are not permitted"
			}
			other[name] = value
		}
	}
	if err := json.Unmarshal(body, &known); err != nil {
		return req, err.Error()
	}
	known.Body = body
	known.Other, _ = json.Marshal(other) // parsed JSON can be encoded
	problem = known.problem()
	if problem == "" {
		problem = known.thinkingProblem()
	}
	return known, problem
}

func (r *Request) problem() string {
	switch {
	case r.Model == "":
		return "model: Field required"
	case r.MaxTokens < 1:
		return "max_tokens: must be at least 1"
	case !r.Stream:
		return "this fake streams only"
	case len(r.Messages) == 0:
		return "messages: at least one message is required"
	case r.Messages[0].Role != "user":
		return "messages: first message must use the \"user\" role"
	}
	prompt := &prompt{}
	for _, t := range r.Tools {
		if p := t.problem(); p != "" {
			return "tools: " + p
		}
		prompt.add(t, t.CacheControl)
	}
	for _, b := range r.System {
		if b.Type != "text" || strings.TrimSpace(b.Text) == "" {
			return "system: text content blocks must be non-empty"
		}
		prompt.add(b, b.CacheControl)
	}
	if len(r.Tools) == 0 && r.hasCalls() {
		return "Requests which include `tool_use` or `tool_result` blocks must define tools"
	}
	var open []string // calls without a result
	for i, m := range r.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return fmt.Sprintf("messages.%d: role %q", i, m.Role)
		}
		if len(m.Content) == 0 {
			return fmt.Sprintf("messages.%d: all messages must have non-empty content", i)
		}
		var p string
		if open, p = m.problem(open); p != "" {
			return fmt.Sprintf("messages.%d: %s", i, p)
		}
		for _, b := range m.Content {
			prompt.add(b, b.CacheControl)
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("`tool_use` ids were found without `tool_result` blocks: %s", open)
	}
	if len(prompt.marked) > 4 {
		return fmt.Sprintf("A maximum of 4 blocks with cache_control may be provided. Found %d.",
			len(prompt.marked))
	}
	r.marked = prompt.marked
	return ""
}

func (r *Request) hasCalls() bool {
	for _, m := range r.Messages {
		for _, b := range m.Content {
			if b.Type == "tool_use" || b.Type == "tool_result" {
				return true
			}
		}
	}
	return false
}

// A prompt is the text that a model reads, in its order, and the marked beginnings of the text.
type prompt struct {
	text   bytes.Buffer
	marked []string
}

func (p *prompt) add(part any, mark json.RawMessage) {
	data, err := json.Marshal(part)
	if err != nil {
		panic(err) // parsed JSON can be encoded
	}
	if len(mark) > 0 { // the mark itself is not part of the text
		data = bytes.Replace(data, mark, nil, 1)
	} else {
		data = bytes.Replace(data, []byte(`"cache_control":null`), []byte(`"cache_control":`), 1)
	}
	p.text.Write(data)
	if len(mark) > 0 {
		p.marked = append(p.marked, p.text.String())
	}
}

func (t *Tool) problem() string {
	var schema struct{ Type string }
	switch {
	case !toolName.MatchString(t.Name):
		return "name " + t.Name
	case json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object":
		return t.Name + ": input_schema.type: Field required"
	}
	return ""
}

// problem checks a message that follows calls without results. It returns the message's own calls,
// whose results must follow.
func (m *Message) problem(open []string) (calls []string, problem string) {
	results := 0
	for i, b := range m.Content {
		switch {
		case b.Type == "text" && strings.TrimSpace(b.Text) == "":
			return nil, "text content blocks must contain non-whitespace text"
		case b.Type == "text":
		case b.Type == "tool_result" && m.Role == "user":
			if results == len(open) || i > results {
				return nil, "unexpected `tool_use_id` found in `tool_result` blocks: " + b.ToolUseID
			}
			found := false
			for _, id := range open {
				found = found || id == b.ToolUseID
			}
			if !found {
				return nil, "unexpected `tool_use_id` found in `tool_result` blocks: " + b.ToolUseID
			}
			results++
		case b.Type == "tool_use" && m.Role == "assistant":
			if !callID.MatchString(b.ID) || !toolName.MatchString(b.Name) {
				return nil, "tool_use: id or name: String should match pattern"
			}
			var input map[string]any
			if json.Unmarshal(b.Input, &input) != nil || input == nil {
				return nil, "tool_use.input: Input should be a valid dictionary"
			}
			calls = append(calls, b.ID)
		case b.Type == "thinking" && m.Role == "assistant":
			if b.Signature != "signed:"+b.Thinking {
				return nil, "Invalid `signature` in `thinking` block"
			}
		case b.Type == "image" && m.Role == "user":
			if b.Source == nil || b.Source.Type != "base64" || len(b.Source.Data) == 0 {
				return nil, "image.source"
			}
		default:
			return nil, "a block of type " + b.Type + " of the " + m.Role
		}
	}
	if last := m.Content[len(m.Content)-1]; last.Type == "thinking" {
		return nil, "The final block in an assistant message cannot be `thinking`."
	}
	if results != len(open) {
		return nil, fmt.Sprintf("`tool_use` ids were found without `tool_result` blocks: %s", open)
	}
	return calls, ""
}
