package openai

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strings"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// These types replace go-openai's request types. Those omit empty contents and arguments, on which
// some providers insist, and have no room for fields that only one provider knows.

type wireRequest struct {
	Model               string         `json:"model"`
	Messages            []any          `json:"messages"`
	MaxTokens           int            `json:"max_tokens,omitempty"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	ReasoningEffort     string         `json:"reasoning_effort,omitempty"`
	Stream              bool           `json:"stream"`
	StreamOptions       map[string]any `json:"stream_options,omitempty"`
}

type wireMessage struct {
	Role       llm.Role `json:"role"`
	Content    any      `json:"content"` // a string, or parts
	Reasoning  string   `json:"reasoning_content,omitempty"`
	ToolCalls  []any    `json:"tool_calls,omitempty"`
	ToolCallID string   `json:"tool_call_id,omitempty"`
}

// A wirePart is a part of a message with images.
type wirePart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`

	CacheControl *wire.CacheControl `json:"cache_control,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type wireCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
	CacheControl *wire.CacheControl `json:"cache_control,omitempty"`
}

// body encodes req. Conversations with the same beginning are encoded with the same first bytes, so
// that the provider's prompt cache works.
func (m *Model) body(req llm.Request) (outgoing, error) {
	lessons := m.lessons.Load()
	w := wireRequest{Model: m.id, Messages: []any{}, Stream: lessons&noStream == 0}
	if w.Stream && !m.quirks.strict && lessons&noStreamOptions == 0 {
		w.StreamOptions = map[string]any{"include_usage": true}
	}
	if m.quirks.newMaxTokens || lessons&newLimit != 0 {
		w.MaxCompletionTokens = req.MaxOutput
	} else {
		w.MaxTokens = req.MaxOutput
	}
	fields := m.effortFields(req.Effort)
	noReasons := m.quirks.toolsWithoutReasoning || lessons&noReasoning != 0
	if fields["reasoning_effort"] == nil && noReasons && len(req.Tools) > 0 {
		w.ReasoningEffort = "none"
	}
	frame, err := wire.WithFields(w, fields, 0, ownNames...)
	if err != nil {
		return nil, err
	}
	system, messages, err := m.messages(req.Messages)
	if err != nil {
		return nil, err
	}
	// The first match is the field: within a JSON string the quotes would be escaped.
	head, tail, _ := bytes.Cut(frame, []byte(noMessages))
	head = append(slices.Clip(head), noMessages[:len(noMessages)-1]...)
	messages = append(append(messages, ']'), tail...)
	specs, end := req.Tools, []byte("}")
	if len(specs) == 0 && lessons&nameTools != 0 {
		specs = calledTools(req.Messages)
		if fields["tool_choice"] == nil {
			end = []byte(`,"tool_choice":"none"}`)
		}
	}
	if len(specs) == 0 {
		return outgoing{head, system, messages}, nil
	}
	tools, err := m.tools.encode(specs)
	if err != nil {
		return nil, err
	}
	messages = append(messages[:len(messages)-1], `,"tools":`...)
	return outgoing{head, system, messages, tools, end}, nil
}

// calledTools returns the tools that the conversation has used.
func calledTools(messages []llm.Message) (specs []llm.ToolSpec) {
	for _, msg := range messages {
		for _, c := range msg.ToolCalls {
			if !slices.ContainsFunc(specs, func(s llm.ToolSpec) bool { return s.Name == c.Name }) {
				specs = append(specs, llm.ToolSpec{Name: c.Name})
			}
		}
	}
	return specs
}

// lessonOf returns how the provider wants req instead, if err says so, or 0.
func (m *Model) lessonOf(req llm.Request, err error) uint32 {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok || e.Kind != llm.BadRequest {
		return 0
	}
	words := strings.ToLower(e.Error())
	if f, ok := errors.AsType[*wire.Failure](err); ok {
		words = strings.ToLower(f.Code + " " + f.Message) // the whole message
	}
	switch {
	// The name of a model on one's own machine need not tell what it is.
	case wire.ContainsAny(words, "roles must alternate", "role 'user' after role 'tool'",
		"tool call id"):
		return mistral
	// Bedrock refuses calls in the history of a request without tools, and so do proxies in front of
	// it and of Claude, such as LiteLLM.
	case len(req.Tools) == 0 && wire.ContainsAny(words, "without `tools=` param",
		"toolconfig field must be defined", "must define tools"):
		return nameTools
	// The names of Azure's deployments and of a proxy's models need not tell what they are.
	case req.MaxOutput > 0 && strings.Contains(words, "use 'max_completion_tokens' instead"):
		return newLimit
	// OpenAI's newer models reason by default, and their chat API then takes no tools. They have many
	// names, on Azure and behind proxies, too.
	case len(req.Tools) > 0 && strings.Contains(words, "set reasoning_effort to 'none'") &&
		m.effortFields(req.Effort)["reasoning_effort"] == nil:
		return noReasoning
	// Ollama has many models that can't think, and each maker its own words for efforts.
	case m.hasEffort(req.Effort) && wire.ContainsAny(words, "reasoning_effort",
		"does not support thinking", "think value"):
		return noEffort[req.Effort]
	// Each year brings models that want this, such as Xiaomi's MiMo.
	case !m.quirks.reasoningBack && strings.Contains(words, "reasoning_content") &&
		wire.ContainsAny(words, "must be passed back", "is missing in assistant"):
		return reasoningBack
	case strings.Contains(words, "text content blocks must"): // be non-empty, or contain something
		return noEmptyText
	// OpenAI wants to know who uses the newer models, but only if it streams their answers.
	case strings.Contains(words, "must be verified to stream"):
		return noStream
	case !wire.ContainsAny(words, unknownWords...):
	case strings.Contains(words, "stream_options"):
		return noStreamOptions
	case slices.ContainsFunc(m.ownFields(req), func(name string) bool {
		name = strings.ToLower(name)
		return wire.ContainsAny(words, "'"+name, `"`+name, "`"+name, "."+name)
	}):
		return plainMessages
	}
	return 0
}

// unknownWords are words of providers that refuse a field.
var unknownWords = []string{"unsupported", "not supported", "not permitted", "not allowed",
	"unknown", "unrecognized", "unexpected", "cannot find field"}

// ownFields returns the names of the fields in messages of req that the protocol does not have.
// Strict providers are behind proxies, too, whose addresses do not tell.
func (m *Model) ownFields(req llm.Request) (names []string) {
	if m.wantsReasoning() {
		names = append(names, "reasoning_content")
	}
	for _, msg := range req.Messages {
		names = slices.AppendSeq(names, maps.Keys(msg.Extra))
		for _, c := range msg.ToolCalls {
			names = slices.AppendSeq(names, maps.Keys(c.Extra))
		}
	}
	return names
}

// noMessages is the empty list that the messages replace.
const noMessages = `"messages":[]`

// bridge is the message that Mistral's models require between the results of tools and a message of
// the user. Without it they refuse this request and all later ones of the conversation.
const bridge = `,{"role":"assistant","content":"I have the results."}`

// messages encodes the elements of the list of messages. It returns a plain system message at the
// beginning separately, because many requests share it.
func (m *Model) messages(list []llm.Message) (system, rest []byte, err error) {
	size := 1 << 10 // estimated length, so that the buffer need not grow
	for _, msg := range list {
		if msg.Role != llm.System {
			size += 64 + len(msg.Text) + len(msg.Text)/16
		}
	}
	rest = make([]byte, 0, size)
	ids := make(map[string]string)
	for i, msg := range list {
		if i == 0 && msg.Role == llm.System && len(msg.Extra) == 0 {
			if system, err = m.systems.encode(msg.Text); err != nil {
				return nil, nil, err
			}
			continue
		}
		if i > 0 {
			if m.isMistral() && msg.Role == llm.User && list[i-1].Role == llm.ToolRole {
				rest = append(rest, bridge...)
			}
			rest = append(rest, ',')
		}
		if m.isPlain(&msg) {
			rest = append(append(append(rest, `{"role":"`...), msg.Role...), `","content":`...)
			rest = append(wire.AppendText(rest, msg.Text), '}')
			continue
		}
		entry, err := m.message(msg, ids)
		if err != nil {
			return nil, nil, err
		}
		body, err := wire.EncodePlain(entry, 0)
		if err != nil {
			return nil, nil, err
		}
		rest = append(rest, body...)
	}
	return system, rest, nil
}

// wantsReasoning reports whether the provider wants its reasoning back.
func (m *Model) wantsReasoning() bool {
	return m.quirks.reasoningBack || m.lessons.Load()&reasoningBack != 0
}

// isMistral reports whether m is one of Mistral's models. They need the bridge and short ids.
func (m *Model) isMistral() bool {
	return m.quirks.mistral || m.lessons.Load()&mistral != 0
}

// isPlain reports whether only the role and text of msg are sent. This applies to most messages of
// a long conversation, and takes much less time than encoding a [wireMessage].
func (m *Model) isPlain(msg *llm.Message) bool {
	return len(msg.ToolCalls) == 0 && msg.ToolCallID == "" && len(msg.Images) == 0 &&
		len(msg.Extra) == 0 && (msg.Role != llm.Assistant || !m.wantsReasoning())
}

// An outgoing is the body of a request in pieces. Requests share the pieces for the tools and the
// system prompt, which are the larger part of a short request, so that many waiting requests do not
// each need a copy.
type outgoing [][]byte

func (p outgoing) size() (n int64) {
	for _, piece := range p {
		n += int64(len(piece))
	}
	return n
}

// reader returns a reader of all pieces. It reads several at once, so that one system call sends
// them.
func (p outgoing) reader() io.Reader {
	pieces := slices.Clone(net.Buffers(p))
	return &pieces
}

// message returns msg in the form for a request. If it changes the id of a tool call, it stores the
// new id in ids under the old one, for the call's result.
func (m *Model) message(msg llm.Message, ids map[string]string) (any, error) {
	own := m.ownExtra(msg)
	plain := m.quirks.strictMessages || m.lessons.Load()&plainMessages != 0
	withExtra := own && !plain
	w := wireMessage{Role: msg.Role, Content: contentOf(msg),
		ToolCallID: cmp.Or(ids[msg.ToolCallID], msg.ToolCallID)}
	if len(msg.ToolCalls) > 0 && m.lessons.Load()&noEmptyText != 0 &&
		strings.TrimSpace(msg.Text) == "" {
		w.Content = nil
	}
	for i, c := range msg.ToolCalls {
		call := sentCall(c, own)
		if m.isMistral() {
			call.ID = wire.ShortID(c.ID)
		}
		if call.ID != c.ID {
			ids[c.ID] = call.ID
		}
		var extra map[string]json.RawMessage
		if withExtra {
			extra = c.Extra
		}
		if i == 0 && m.quirks.signed && extra[signatureField] == nil {
			signed := make(map[string]json.RawMessage)
			maps.Copy(signed, extra)
			signed[signatureField] = json.RawMessage(noSignature)
			extra = signed
		}
		entry, err := orWithFields(call, extra)
		if err != nil {
			return nil, err
		}
		w.ToolCalls = append(w.ToolCalls, entry)
	}
	if m.wantsReasoning() && !plain && msg.Role == llm.Assistant {
		// Another model or the gateway wrote a message without reasoning. Moonshot refuses a call
		// whose reasoning is missing or empty, and DeepSeek any such message of a conversation with
		// tools.
		w.Reasoning = cmp.Or(msg.Reasoning, " ")
	}
	if !withExtra {
		return w, nil
	}
	return orWithFields(w, msg.Extra)
}

// Gemini signs the first call of each of its answers, and refuses a request in which such a
// signature is missing. For calls that another model has made, its documentation names this value:
// https://ai.google.dev/gemini-api/docs/thought-signatures.
const (
	signatureField = "extra_content"
	noSignature    = `{"google":{"thought_signature":"skip_thought_signature_validator"}}`
)

// contentOf returns the content of msg. Images with data become parts before the text. For other
// images, the text has their path.
func contentOf(msg llm.Message) any {
	var parts []wirePart
	text := msg.Text
	for _, im := range slices.Backward(msg.Images) {
		if len(im.Data) == 0 || msg.Role != llm.User {
			text = strings.TrimSuffix("[image: "+im.Path+"]\n"+text, "\n")
			continue
		}
		url := "data:" + im.Type + ";base64," + base64.StdEncoding.EncodeToString(im.Data)
		parts = append(parts, wirePart{Type: "image_url", ImageURL: &imageURL{url}})
	}
	if len(parts) == 0 {
		return text
	}
	slices.Reverse(parts)
	if text != "" { // some providers refuse an empty part
		parts = append(parts, wirePart{Type: "text", Text: text})
	}
	return parts
}

// ownExtra reports whether this model's provider made the extra fields of msg. It returns true for
// fields without a mark.
func (m *Model) ownExtra(msg llm.Message) bool {
	mark, marked := msg.Extra[originKey]
	return !marked || wire.TextOf(mark) == m.origin
}

// orWithFields returns v with the extra fields, or v itself if there are none.
func orWithFields(v any, extra map[string]json.RawMessage) (any, error) {
	if len(extra) == 0 {
		return v, nil
	}
	b, err := wire.WithFields(v, extra, 0, ownNames...)
	return json.RawMessage(b), err
}

// ownNames are the fields that extra fields can't replace, because wireRequest has them.
var ownNames = []string{
	"model", "messages", "tools", "max_tokens", "max_completion_tokens",
	"stream", "stream_options",
	"role", "content", "reasoning_content", "tool_calls", "tool_call_id",
	"id", "type", "function", originKey,
}

// quirks describes the differences between providers.
type quirks struct {
	newMaxTokens          bool // the output limit is max_completion_tokens
	reasoningBack         bool // wants its reasoning back as reasoning_content
	toolsWithoutReasoning bool // accepts tools only with reasoning switched off
	cacheMarks            bool // caches only marked parts
	strict                bool // refuses stream_options
	mistral               bool // see isMistral
	strictMessages        bool // refuses fields of messages that the protocol does not have
	signed                bool // wants a signature with calls, see noSignature
	plainSchemas          bool // refuses most of JSON Schema, see plainSchema
}

// guessQuirks derives the quirks from host and model id.
func guessQuirks(host, id string) quirks {
	official := host == "api.openai.com"
	bare := path.Base(id) // some hosts put the maker before the id
	google := strings.HasSuffix(host, ".googleapis.com")
	// Groq refuses even the field "channel", which it adds to the answers of gpt-oss. See
	// https://github.com/janhq/jan/issues/8136, https://github.com/Kilo-Org/kilocode/issues/10375.
	strictMessages := host == "api.groq.com" || host == "api.cerebras.ai" || host == "api.mistral.ai"
	return quirks{
		strictMessages: strictMessages,
		newMaxTokens:   official || hasAnyPrefix(bare, "o1", "o3", "o4", "gpt-5", "gpt-6"),
		reasoningBack: !strictMessages &&
			wire.ContainsAny(strings.ToLower(host+"/"+id), "deepseek", "kimi", "moonshot"),
		toolsWithoutReasoning: official &&
			(bare == "gpt-6-sol" || bare == "gpt-6-luna" || strings.HasPrefix(bare, "gpt-5.6")),
		// It sends the usage without stream_options: https://docs.mistral.ai/api.
		strict:  host == "api.mistral.ai",
		mistral: host == "api.mistral.ai" || wire.ContainsAny(strings.ToLower(id), mistralModels...),
		signed:  google && !hasAnyPrefix(bare, "gemini-1", "gemini-2", "gemma"),
		plainSchemas: google ||
			wire.ContainsAny(strings.ToLower(host+"/"+id), "gemini", "kimi", "moonshot"),
		// OpenRouter passes the marks to Anthropic. Models of other makers need none.
		cacheMarks: host == "openrouter.ai" && strings.HasPrefix(id, "anthropic/"),
	}
}

// mistralModels are parts of the ids of Mistral's models, such as ministral, devstral and pixtral.
// Many hosts offer these models.
var mistralModels = []string{"stral", "xtral"}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
