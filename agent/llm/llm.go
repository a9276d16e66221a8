// Package llm defines what the gateway asks of a language model, without
// naming any provider: the messages of a conversation, the [Model] that
// continues them as a stream, and its errors by kind.
//
// Providers stand in packages below this one. The package owns no tables.
package llm

import (
	"context"
	"encoding/json"
	"iter"
)

// A Role says who speaks in a [Message].
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
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // of an Assistant message
	ToolCallID string     `json:"tool_call_id,omitempty"` // the call that is answered
	Images     []Image    `json:"images,omitempty"`       // of a User message; shown before its text

	// Foreign names the source of foreign text in Text or Images, such as a web page; "" if
	// there is none. Rights is the least role of the people who wrote it, or "" if it was
	// written by others. Neither is sent to the provider.
	Foreign string `json:"foreign,omitempty"`
	Rights  string `json:"rights,omitempty"`

	// Extra holds fields of an Assistant message that only its provider
	// understands and wants back unchanged, such as reasoning_details.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// An Image is a picture that belongs to a [Message].
type Image struct {
	Path string `json:"path"` // where it is kept
	Type string `json:"type"` // its MIME type

	// Ready says that models accept the file unchanged.
	Ready bool `json:"ready,omitempty"`

	// Data is the content of the image. It is loaded for one call only; a transcript keeps
	// only the path. Without Data the model is told the path.
	Data []byte `json:"-"`
}

// A ToolCall is a model's request to use a tool.
type ToolCall struct {
	ID        string `json:"id"` // unique within the conversation; never empty
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as the model wrote them, meant to be a JSON object

	// Extra is like that of a Message; it holds a thought signature, for example.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// A ToolSpec describes a tool that a model may call.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, an object
}

// A Request asks a model to continue a conversation.
type Request struct {
	Messages  []Message // the first is the System message
	Tools     []ToolSpec
	MaxOutput int // most tokens of the answer; 0 means the provider's default
	Effort    Effort
}

// A Finish says why an answer ended.
type Finish string

// The reasons for the end of an answer.
const (
	FinishStop      Finish = "stop"
	FinishLength    Finish = "length" // cut off by the output limit
	FinishToolCalls Finish = "tool_calls"
	FinishFiltered  Finish = "content_filter"
)

// Usage counts what a call consumed, in tokens.
type Usage struct {
	Input  int `json:"input"`  // the whole prompt, Cached included
	Output int `json:"output"` // the whole answer, reasoning included
	Cached int `json:"cached"` // the part of Input that came from the provider's prompt cache
}

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.Cached += v.Cached
}

// A Response is a whole answer.
type Response struct {
	Message Message // Role is Assistant
	Finish  Finish
	Usage   Usage  // zero if the provider did not say
	Model   string // the model that answered, as configured
}

// An Event is a piece of a streamed answer.
type Event struct {
	Text     string    // visible text to append
	Reset    bool      // the answer starts anew, with Text: what was streamed before is void
	Response *Response // the whole answer; on the last event only
}

// A Model continues conversations. It is safe for concurrent use.
type Model interface {
	// Stream asks for an answer and yields it piece by piece. The last event carries the
	// Response. If the call fails, an error comes instead, after any number of events: an
	// *[Error], or ctx's error once ctx has ended. Nothing follows either. Breaking out of the
	// loop ends the call.
	Stream(ctx context.Context, req Request) iter.Seq2[Event, error]
}
