package anthropic

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// Texts for places where the API requires some and the conversation has none.
const (
	noText      = "(no text)"
	noBeginning = "(The conversation began earlier.)"
)

// marked is how many of the newest messages of the user's side are marked for the cache. Together
// with the tools and the system prompt that makes four marks, the API's maximum.
const marked = 2

type request struct {
	Model     string    `json:"model"`
	MaxTokens int       `json:"max_tokens"`
	Stream    bool      `json:"stream"`
	Tools     []tool    `json:"tools,omitempty"`
	Choice    *choice   `json:"tool_choice,omitempty"`
	System    []block   `json:"system,omitempty"`
	Messages  []message `json:"messages"`
}

type tool struct {
	Name         string             `json:"name"`
	Description  string             `json:"description,omitempty"`
	InputSchema  json.RawMessage    `json:"input_schema"`
	CacheControl *wire.CacheControl `json:"cache_control,omitempty"`
}

// A choice determines whether the model may use tools.
type choice struct {
	Type string `json:"type"`
}

type message struct {
	Role    llm.Role `json:"role"`
	Content []block  `json:"content"`
}

// A block is a part of a message. Its type determines which fields are set.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"` // nil unless the block is a thought
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"` // data of a redacted thought
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	Source    *source         `json:"source,omitempty"`

	CacheControl *wire.CacheControl `json:"cache_control,omitempty"`
}

// A source is the data of an image.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
}

func textBlock(text string) block { return block{Type: "text", Text: text} }

// body encodes req. Conversations with the same beginning are encoded with the same first bytes, so
// that the provider's prompt cache works.
func (m *Model) body(req llm.Request) ([]byte, error) {
	r := request{Model: m.id, MaxTokens: cmp.Or(req.MaxOutput, defaultMaxOutput), Stream: true,
		Tools: tools(req.Tools)}
	for _, msg := range req.Messages {
		switch msg.Role {
		case llm.System:
			if msg.Text != "" {
				r.System = append(r.System, textBlock(msg.Text))
			}
		case llm.Assistant:
			r.Messages = appended(r.Messages, llm.Assistant, m.assistantBlocks(msg))
		default:
			r.Messages = appended(r.Messages, llm.User, userBlocks(msg))
		}
	}
	if len(r.Tools) == 0 {
		r.nameTools()
	}
	r.mark()
	fields := m.think(&r, req.Effort, req.MaxOutput)
	return wire.WithFields(r, fields, 0, ownFields...)
}

// ownFields are the fields that configured fields can't replace.
var ownFields = []string{"model", "stream", "tools", "tool_choice", "system", "messages"}

// nameTools declares the tools that the conversation has used, and forbids their use. The API
// refuses tool calls and results in a request without tools.
func (r *request) nameTools() {
	for _, m := range r.Messages {
		for _, b := range m.Content {
			known := slices.ContainsFunc(r.Tools, func(t tool) bool { return t.Name == b.Name })
			if b.Type == "tool_use" && !known {
				r.Tools = append(r.Tools, tool{Name: b.Name, InputSchema: wire.NoArguments})
			}
		}
	}
	if len(r.Tools) > 0 {
		r.Choice = &choice{"none"}
	}
}

// appended returns list with the blocks of a role appended. If the last message has the same role,
// the blocks are added to it.
func appended(list []message, role llm.Role, blocks []block) []message {
	if len(list) == 0 && role == llm.Assistant {
		list = append(list, message{llm.User, []block{textBlock(noBeginning)}})
	}
	if n := len(list); n > 0 && list[n-1].Role == role {
		list[n-1].Content = append(list[n-1].Content, blocks...)
		return list
	}
	if len(blocks) == 0 {
		blocks = []block{textBlock(noText)}
	}
	return append(list, message{role, blocks})
}

// mark marks the parts that the provider is to cache.
func (r *request) mark() {
	if n := len(r.Tools); n > 0 {
		r.Tools[n-1].CacheControl = wire.Ephemeral
	}
	if n := len(r.System); n > 0 {
		r.System[n-1].CacheControl = wire.Ephemeral
	}
	left := marked
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == llm.User && left > 0 {
			m.Content[len(m.Content)-1].CacheControl = wire.Ephemeral
			left--
		}
	}
}

// assistantBlocks returns the blocks of an assistant message.
func (m *Model) assistantBlocks(msg llm.Message) []block {
	var kept []block
	if wire.TextOf(msg.Extra[originKey]) == m.origin {
		_ = json.Unmarshal(msg.Extra[thoughtsKey], &kept) // unchanged; there may be none
	}
	var blocks, text, calls []block
	if s := strings.TrimRightFunc(msg.Text, unicode.IsSpace); s != "" { // the API refuses blank text
		text = []block{textBlock(s)}
	}
	for _, c := range msg.ToolCalls {
		calls = append(calls, block{Type: "tool_use", ID: wire.SentID(c.ID),
			Name: wire.SentName(c.Name), Input: json.RawMessage(wire.SentArguments(c.Arguments))})
	}
	ordered := textOf(kept) == msg.Text // otherwise the message was changed since
	for _, b := range kept {
		switch {
		case b.isThought():
			blocks = append(blocks, b)
		case !ordered:
		case b.Type == "text":
			text = nil
			if b.Text = strings.TrimRightFunc(b.Text, unicode.IsSpace); b.Text != "" {
				blocks = append(blocks, b)
			}
		default:
			i := slices.IndexFunc(calls, func(c block) bool { return c.ID == wire.SentID(b.ID) })
			if i >= 0 {
				blocks = append(blocks, calls[i])
				calls = slices.Delete(calls, i, i+1)
			}
		}
	}
	blocks = slices.Concat(blocks, text, calls)
	// The API refuses an answer that ends with a thought, such as one that was cut off within it.
	for len(blocks) > 0 && blocks[len(blocks)-1].isThought() {
		blocks = blocks[:len(blocks)-1]
	}
	return blocks
}

func (b *block) isThought() bool { return strings.HasSuffix(b.Type, "thinking") }

// textOf returns the texts of blocks, joined.
func textOf(blocks []block) (text string) {
	for _, b := range blocks {
		text += b.Text
	}
	return text
}

// userBlocks returns the blocks of a user's or tool's message.
func userBlocks(msg llm.Message) (blocks []block) {
	if msg.Role == llm.ToolRole {
		return []block{{Type: "tool_result", ToolUseID: wire.SentID(msg.ToolCallID),
			Content: cmp.Or(strings.TrimSpace(msg.Text), noText)}}
	}
	text := msg.Text
	for _, im := range slices.Backward(msg.Images) {
		if len(im.Data) == 0 {
			text = "[image: " + im.Path + "]\n" + text
			continue
		}
		blocks = append(blocks, block{Type: "image", Source: &source{"base64", im.Type, im.Data}})
	}
	slices.Reverse(blocks)
	if strings.TrimSpace(text) != "" {
		blocks = append(blocks, textBlock(text))
	}
	return blocks
}

// tools returns the tools in the form of the API.
func tools(specs []llm.ToolSpec) (list []tool) {
	for _, s := range specs {
		t := tool{Name: s.Name, Description: s.Description, InputSchema: s.Schema}
		if len(t.InputSchema) == 0 {
			t.InputSchema = wire.NoArguments
		}
		list = append(list, t)
	}
	return list
}
