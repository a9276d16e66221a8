package anthropic

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// Texts that stand where the API wants some and there is none.
const (
	noText      = "(no text)"
	noBeginning = "(The conversation began earlier.)"
)

// marked is how many of the newest messages of the user's side are marked for the cache. With the
// tools and the system prompt that makes four, the most that the API takes.
const marked = 2

// noArguments is the schema of a tool that has none.
const noArguments = `{"type":"object","properties":{}}`

// params returns the request. Equal conversations have equal beginnings, so that the cache hits.
func (m *Model) params(req llm.Request) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{
		Model:     anthropic.Model(m.id),
		MaxTokens: int64(cmp.Or(req.MaxOutput, defaultMaxOutput)),
		Tools:     tools(req.Tools),
	}
	for _, msg := range req.Messages {
		switch msg.Role {
		case llm.System:
			if msg.Text != "" {
				p.System = append(p.System, anthropic.TextBlockParam{Text: msg.Text})
			}
		case llm.Assistant:
			p.Messages = appended(p.Messages, anthropic.MessageParamRoleAssistant, m.said(msg))
		default:
			p.Messages = appended(p.Messages, anthropic.MessageParamRoleUser, asked(msg))
		}
	}
	mark(&p)
	return p
}

// appended returns list with blocks of a role, within its last message if that has the same role.
func appended(
	list []anthropic.MessageParam, role anthropic.MessageParamRole,
	blocks []anthropic.ContentBlockParamUnion,
) []anthropic.MessageParam {
	if len(list) == 0 && role == anthropic.MessageParamRoleAssistant {
		list = append(list, anthropic.NewUserMessage(anthropic.NewTextBlock(noBeginning)))
	}
	if n := len(list); n > 0 && list[n-1].Role == role {
		list[n-1].Content = append(list[n-1].Content, blocks...)
		return list
	}
	if len(blocks) == 0 {
		blocks = append(blocks, anthropic.NewTextBlock(noText))
	}
	return append(list, anthropic.MessageParam{Role: role, Content: blocks})
}

// mark marks what the provider is to cache.
func mark(p *anthropic.MessageNewParams) {
	here := anthropic.NewCacheControlEphemeralParam()
	if n := len(p.Tools); n > 0 {
		*p.Tools[n-1].GetCacheControl() = here
	}
	if n := len(p.System); n > 0 {
		p.System[n-1].CacheControl = here
	}
	left := marked
	for i := len(p.Messages) - 1; i >= 0 && left > 0; i-- {
		if c := p.Messages[i].Content; p.Messages[i].Role == anthropic.MessageParamRoleUser {
			*c[len(c)-1].GetCacheControl() = here
			left--
		}
	}
}

// said returns the blocks of an answer.
func (m *Model) said(msg llm.Message) (blocks []anthropic.ContentBlockParamUnion) {
	if wire.TextOf(msg.Extra[originKey]) == m.origin {
		blocks = thoughts(msg.Extra[thoughtsKey])
	}
	if text := strings.TrimRight(msg.Text, " \t\r\n"); text != "" { // the API refuses blank texts
		blocks = append(blocks, anthropic.NewTextBlock(text))
	}
	for _, c := range msg.ToolCalls {
		blocks = append(blocks, anthropic.NewToolUseBlock(
			wire.SentID(c.ID), arguments(c.Arguments), wire.SentName(c.Name)))
	}
	return blocks
}

// thoughts returns what the model thought, as it came.
func thoughts(raw json.RawMessage) (blocks []anthropic.ContentBlockParamUnion) {
	var list []struct{ Type, Thinking, Signature, Data string }
	if json.Unmarshal(raw, &list) != nil {
		return nil // there are none
	}
	for _, t := range list {
		if t.Type == "thinking" {
			blocks = append(blocks, anthropic.NewThinkingBlock(t.Signature, t.Thinking))
		} else {
			blocks = append(blocks, anthropic.NewRedactedThinkingBlock(t.Data))
		}
	}
	return blocks
}

// arguments returns args if they are a JSON object, and else an object that has them as text.
func arguments(args string) any {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &object) == nil && object != nil {
		return json.RawMessage(args)
	}
	if strings.TrimSpace(args) == "" {
		return json.RawMessage("{}")
	}
	return map[string]string{"raw": args}
}

// asked returns the blocks of a message of a user or a tool.
func asked(msg llm.Message) (blocks []anthropic.ContentBlockParamUnion) {
	if msg.Role == llm.ToolRole {
		text := cmp.Or(strings.TrimSpace(msg.Text), noText)
		return append(blocks, anthropic.NewToolResultBlock(wire.SentID(msg.ToolCallID), text, false))
	}
	text := msg.Text
	for _, im := range slices.Backward(msg.Images) {
		if len(im.Data) == 0 {
			text = "[image: " + im.Path + "]\n" + text
			continue
		}
		blocks = append(blocks, anthropic.NewImageBlockBase64(
			im.Type, base64.StdEncoding.EncodeToString(im.Data)))
	}
	slices.Reverse(blocks)
	if strings.TrimSpace(text) != "" {
		blocks = append(blocks, anthropic.NewTextBlock(text))
	}
	return blocks
}

// hasImages reports whether images are sent with req.
func hasImages(req llm.Request) bool {
	return slices.ContainsFunc(req.Messages, func(m llm.Message) bool {
		return slices.ContainsFunc(m.Images, func(im llm.Image) bool { return len(im.Data) > 0 })
	})
}

// tools returns the tools as the API wants them.
func tools(specs []llm.ToolSpec) (list []anthropic.ToolUnionParam) {
	for _, s := range specs {
		schema := s.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(noArguments)
		}
		list = append(list, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
			Name: s.Name, Description: param.NewOpt(s.Description),
			InputSchema: param.Override[anthropic.ToolInputSchemaParam](schema),
		}})
	}
	return list
}
