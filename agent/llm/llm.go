// Package llm defines the interface to language models, independent of any provider: the messages
// of a conversation, the [Model] that continues a conversation as a stream, and errors classified
// by kind.
//
// Providers are implemented in packages below this one. The package has no database tables.
package llm

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
)

// A Role is the author's role in a [Message].
type Role string

// The roles of the chat completion protocol.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// A Message is one entry of a conversation. Its JSON form is stored in transcripts.
type Message struct {
	Role       Role       `json:"role"`
	Text       string     `json:"text"`
	Reasoning  string     `json:"reasoning,omitempty"`    // what the model thought; never shown
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // only in an Assistant message
	ToolCallID string     `json:"tool_call_id,omitempty"` // the call that this message answers
	Images     []Image    `json:"images,omitempty"`       // only in a User message; precede the text

	// Foreign names the source of foreign text in Text or Images, such as a web page; "" if
	// there is none. ForeignRole is the least role of the people who wrote it, or "" if it was
	// written by others. Neither is sent to the provider.
	Foreign     string `json:"foreign,omitempty"`
	ForeignRole string `json:"rights,omitempty"`

	// Extra holds fields of an Assistant message that only its provider
	// understands and wants back unchanged, such as reasoning_details.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// An Image is a picture that belongs to a [Message].
type Image struct {
	Path string `json:"path"` // where the file is stored
	Type string `json:"type"` // its MIME type

	// Ready reports that models accept the file without conversion.
	Ready bool `json:"ready,omitempty"`

	// Data is the content of the image. It is loaded for one call only; a transcript stores only
	// the path. If Data is empty, the model gets the path instead.
	Data []byte `json:"-"`
}

// A ToolCall is a model's request to use a tool.
type ToolCall struct {
	ID        string `json:"id"` // unique in the conversation; never empty
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as the model wrote them; should be a JSON object

	// Extra is like that of a Message. For example, it may hold a thought signature.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// A ToolSpec describes a tool that a model may call.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, an object
}

// PlainName returns name with "_" for each character that some provider refuses in names of tools.
func PlainName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
}

// A Request asks a model to continue a conversation.
type Request struct {
	Messages  []Message // the first is the System message
	Tools     []ToolSpec
	MaxOutput int // limit of the answer in tokens; 0 means the provider's default
	Effort    Effort
}

// A Finish is the reason why an answer ended.
type Finish string

// The reasons why an answer ended.
const (
	FinishStop      Finish = "stop"
	FinishLength    Finish = "length" // cut off by the output limit
	FinishToolCalls Finish = "tool_calls"
	FinishFiltered  Finish = "content_filter"
)

// Usage counts the tokens of a call.
type Usage struct {
	Input  int `json:"input"`  // the whole prompt, including Cached
	Output int `json:"output"` // the whole answer, including reasoning
	Cached int `json:"cached"` // the part of Input that the provider's prompt cache had
}

// maxTokens is more than any call has.
const maxTokens = 1_000_000_000

// NewUsage returns the usage that a provider reports. It bounds numbers that can't be true:
// negative ones would lower the used budget, and the database can't add up very great ones.
func NewUsage(input, output, cached int) Usage {
	bounded := func(n int) int { return min(max(n, 0), maxTokens) }
	return Usage{Input: bounded(input), Output: bounded(output), Cached: bounded(cached)}
}

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.Cached += v.Cached
}

// A Response is a complete answer.
type Response struct {
	Message Message // Role is Assistant
	Finish  Finish
	Usage   Usage  // zero if the provider sent none
	Refused Usage  // of answers before this one of which a content filter left nothing
	Model   string // configured name of the model that answered
}

// Spent returns the usage to pay for r.
func (r *Response) Spent() Usage {
	u := r.Usage
	u.Add(r.Refused)
	return u
}

// An Event is a piece of a streamed answer.
type Event struct {
	Text     string    // visible text to append
	Reset    bool      // discard the text streamed so far; the answer restarts with Text
	Response *Response // the complete answer; only in the last event
}

// A Model continues conversations. It is safe for concurrent use.
type Model interface {
	// Stream calls the model and yields its answer piece by piece. The last event carries the
	// Response. If the call fails, the sequence ends with an error, after any number of events: an
	// *[Error], or ctx's error if ctx has ended. Breaking out of the loop ends the call.
	Stream(ctx context.Context, req Request) iter.Seq2[Event, error]
}
