package openaitest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A Request is a request for a chat completion.
type Request struct {
	N         int // number of the request, from 1
	Model     string
	Messages  []Message
	Tools     []Tool
	MaxTokens int // from either field name
	Header    http.Header
	// RemoteAddr is the client's address.
	RemoteAddr string
	Body       []byte // as received
}

// A Message is one message of a [Request].
type Message struct {
	Role       string
	Content    string  // the texts of all parts, joined
	Images     []Image // decoded, from the parts
	Reasoning  string
	ToolCalls  []ToolCall
	ToolCallID string
	Raw        map[string]json.RawMessage // all fields
}

// An Image is an image sent as a data URL.
type Image struct {
	Type string // MIME type
	Data []byte
}

// A ToolCall is a tool call, in a [Request] or a [Reply].
type ToolCall struct {
	ID        string // default in a Reply: call_1, call_2 …
	Name      string
	Arguments string
}

// A Tool is a tool that a [Request] offers.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage
}

// HasTool reports whether the request offers the tool.
func (r Request) HasTool(name string) bool {
	for _, t := range r.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

type wireRequest struct {
	Model               string                       `json:"model"`
	Messages            []map[string]json.RawMessage `json:"messages"`
	MaxTokens           int                          `json:"max_tokens"`
	MaxCompletionTokens int                          `json:"max_completion_tokens"`
	Stream              bool                         `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools json.RawMessage `json:"tools"`
}

type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// A toolbox remembers valid lists of tools. The list is the largest part of a request and usually
// the same. Parsing it each time took most of the time of some tests.
type toolbox struct {
	mu    sync.Mutex
	known []offer
}

// tools is the toolbox of all servers, because the gateways of a test have the same tools.
var tools toolbox

// maxOffers is how many lists are remembered. Roles and sub-agents have their own.
const maxOffers = 32

// An offer is a list of tools, with the end of the body that contains it.
type offer struct {
	end   []byte
	tools []Tool
}

// parse decodes and checks a body. With an error, it also returns the part that was decoded.
func (b *toolbox) parse(body []byte) (Request, error) {
	b.mu.Lock()
	i := slices.IndexFunc(b.known, func(o offer) bool { return bytes.HasSuffix(body, o.end) })
	if i >= 0 {
		o := b.known[i]
		b.mu.Unlock()
		// If the body without this end and with "}" is an object, the end is not within a string.
		req, _, err := parse(append(bytes.Clone(body[:len(body)-len(o.end)]), '}'))
		req.Body, req.Tools = body, slices.Clone(o.tools)
		return req, err
	}
	b.mu.Unlock()
	req, tools, err := parse(body)
	end := slices.Concat([]byte(`,"tools":`), tools, []byte("}"))
	if err == nil && len(tools) > 0 && bytes.HasSuffix(body, end) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.known = append(b.known, offer{end, slices.Clone(req.Tools)})
		b.known = b.known[max(0, len(b.known)-maxOffers):]
	}
	return req, err
}

// parse decodes and checks a body. It also returns the undecoded list of tools.
func parse(body []byte) (Request, json.RawMessage, error) {
	req := Request{Body: body}
	invalid := func(format string, args ...any) (Request, json.RawMessage, error) {
		return req, nil, fmt.Errorf(format, args...)
	}
	var w wireRequest
	if err := json.Unmarshal(body, &w); err != nil {
		return invalid("could not parse the JSON body: %w", err)
	}
	req.Model = w.Model
	req.MaxTokens = max(w.MaxTokens, w.MaxCompletionTokens)
	for i, raw := range w.Messages {
		m, err := parseMessage(raw)
		if err != nil {
			return invalid("messages[%d]: %w", i, err)
		}
		req.Messages = append(req.Messages, m)
	}
	var err error
	if req.Tools, err = parseTools(w.Tools); err != nil {
		return invalid("%w", err)
	}
	switch {
	case w.Model == "":
		return invalid("you must provide a model parameter")
	case !w.Stream || !w.StreamOptions.IncludeUsage:
		return invalid("this fake only streams, and with usage")
	case w.MaxTokens > 0 && w.MaxCompletionTokens > 0:
		return invalid("max_tokens and max_completion_tokens exclude each other")
	}
	return req, w.Tools, checkMessages(req.Messages)
}

func parseMessage(raw map[string]json.RawMessage) (Message, error) {
	m := Message{Raw: raw}
	for name, to := range map[string]*string{
		"role": &m.Role, "reasoning_content": &m.Reasoning, "tool_call_id": &m.ToolCallID,
	} {
		value, has := raw[name]
		if !has {
			continue
		}
		if err := json.Unmarshal(value, to); err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := m.parseContent(raw["content"]); err != nil {
		return m, err
	}
	var calls []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	}
	if value, has := raw["tool_calls"]; has {
		if err := json.Unmarshal(value, &calls); err != nil || len(calls) == 0 {
			return m, errors.New("tool_calls: empty or malformed")
		}
	}
	for i, c := range calls {
		switch {
		case c.ID == "" || c.Type != "function" || c.Function.Name == "":
			return m, fmt.Errorf("tool_calls[%d]: id, type or name missing", i)
		case c.Function.Arguments == nil:
			return m, fmt.Errorf("tool_calls[%d]: missing field `arguments`", i)
		case !validName(c.Function.Name, 64):
			return m, fmt.Errorf("tool_calls[%d].function.name: string does not match pattern. "+
				"Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'", i)
		case !validName(c.ID, 40):
			return m, fmt.Errorf("tool_calls[%d].id: string too long or does not match "+
				"'^[a-zA-Z0-9_-]+$'", i)
		case !isObject(*c.Function.Arguments):
			return m, fmt.Errorf("tool_calls[%d].function.arguments: not a JSON object", i)
		}
		m.ToolCalls = append(m.ToolCalls, ToolCall{c.ID, c.Function.Name, *c.Function.Arguments})
	}
	return m, nil
}

// parseContent parses a text, or the parts of a message with images.
func (m *Message) parseContent(raw json.RawMessage) error {
	if raw == nil {
		return errors.New("missing field `content`")
	}
	if json.Unmarshal(raw, &m.Content) == nil {
		return nil
	}
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL *struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
		return errors.New("content: neither a string nor parts")
	}
	for i, p := range parts {
		switch {
		case p.Type == "text" && p.Text != "" && p.ImageURL == nil:
			m.Content += p.Text
		case p.Type == "image_url" && p.Text == "" && p.ImageURL != nil && m.Role == "user":
			image, err := parseImage(p.ImageURL.URL)
			if err != nil {
				return fmt.Errorf("content[%d]: %w", i, err)
			}
			m.Images = append(m.Images, image)
		default:
			return fmt.Errorf("content[%d]: a part of type %q is malformed or not allowed", i, p.Type)
		}
	}
	return nil
}

// parseImage parses the data URL of an image and checks that its content has the declared type.
func parseImage(url string) (Image, error) {
	kind, encoded, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	data, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case !ok || !strings.HasPrefix(url, "data:image/"):
		return Image{}, errors.New("image_url: this fake takes data URLs of images only")
	case err != nil:
		return Image{}, fmt.Errorf("image_url: %w", err)
	case http.DetectContentType(data) != kind:
		return Image{}, errors.New("you uploaded an unsupported image: it is not " + kind)
	}
	return Image{kind, data}, nil
}

// images returns the number of images in the request.
func (r Request) images() (n int) {
	for _, m := range r.Messages {
		n += len(m.Images)
	}
	return n
}

// parseTools returns the tools of a request up to the first invalid one.
func parseTools(raw json.RawMessage) (list []Tool, err error) {
	var tools []wireTool
	if raw != nil {
		if err := json.Unmarshal(raw, &tools); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
	}
	for i, t := range tools {
		var schema struct {
			Type       string                     `json:"type"`
			Properties map[string]json.RawMessage `json:"properties"`
		}
		err := json.Unmarshal(t.Function.Parameters, &schema)
		switch {
		case t.Type != "function" || !validName(t.Function.Name, 64):
			return list, fmt.Errorf("tools[%d]: invalid type or name", i)
		case err != nil || schema.Type != "object":
			return list, fmt.Errorf("tools[%d]: invalid schema: must be of type object", i)
		case schema.Properties == nil:
			return list, fmt.Errorf("tools[%d]: invalid schema: object schema missing properties", i)
		}
		if p := schemaProblem(t.Function.Parameters); p != "" {
			return list, fmt.Errorf("tools[%d]: invalid schema: %s", i, p)
		}
		list = append(list, Tool{t.Function.Name, t.Function.Description, t.Function.Parameters})
	}
	return list, nil
}

// schemaProblem returns why OpenAI refuses a part of a tool's schema, or "".
func schemaProblem(raw json.RawMessage) string {
	var s map[string]json.RawMessage
	if json.Unmarshal(raw, &s) != nil {
		return "" // not a schema, or a boolean
	}
	items := s["items"]
	if string(s["type"]) == `"array"` && items == nil {
		return "array schema missing items"
	}
	if len(items) > 0 && items[0] == '[' {
		return string(items) + " is not of type 'object', 'boolean'"
	}
	var named map[string]json.RawMessage
	if err := json.Unmarshal(s["properties"], &named); err != nil {
		return schemaProblem(items)
	}
	for name, sub := range named {
		if p := schemaProblem(sub); p != "" {
			return fmt.Sprintf("in %q: %s", name, p)
		}
	}
	return schemaProblem(items)
}

// isObject reports whether s is a JSON object.
func isObject(s string) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal([]byte(s), &object) == nil && object != nil
}

// validName reports whether s matches ^[a-zA-Z0-9_-]+$ and has at most most characters, as the API
// requires.
func validName(s string, most int) bool {
	for _, c := range s {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && !('0' <= c && c <= '9') && c != '_' && c != '-' {
			return false
		}
	}
	return 0 < len(s) && len(s) <= most
}

// checkMessages checks the order of messages.
func checkMessages(messages []Message) error {
	if len(messages) == 0 {
		return errors.New("[] is too short - 'messages'")
	}
	open := make(map[string]bool) // calls without a result
	seen := make(map[string]bool)
	for i, m := range messages {
		if len(open) > 0 && m.Role != "tool" {
			return fmt.Errorf("messages[%d]: tool_calls must be followed by a result for each", i)
		}
		switch m.Role {
		case "system", "user":
		case "assistant":
			if i == 0 {
				return errors.New("messages[0]: must be of role system or user")
			}
		case "tool":
			if !open[m.ToolCallID] {
				return fmt.Errorf("messages[%d]: role tool must be a response to a preceding "+
					"message with tool_calls", i)
			}
			delete(open, m.ToolCallID)
		default:
			return fmt.Errorf("messages[%d]: invalid role %q", i, m.Role)
		}
		for _, c := range m.ToolCalls {
			if m.Role != "assistant" || seen[c.ID] {
				return fmt.Errorf("messages[%d]: duplicate or misplaced tool call %q", i, c.ID)
			}
			open[c.ID], seen[c.ID] = true, true
		}
	}
	if len(open) > 0 {
		return errors.New("tool_calls must be followed by a result for each")
	}
	return nil
}
