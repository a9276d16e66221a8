// Package demo is a built-in model for users who have no API key yet. It is a table of rules, not a
// language model.
//
// It exercises the complete gateway without a network: it streams and calls tools. To add an
// ability, add a line to the table of rules.
//
// The model has no state: it knows a conversation only from the request. The package has no
// database tables.
package demo

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"gateway/agent/llm"
	"gateway/agent/llm/wire"
)

// DefaultDelay is the usual pause after each word.
const DefaultDelay = 10 * time.Millisecond

// A Model is the demo model. It implements [llm.Model].
type Model struct {
	name  string        // as configured
	delay time.Duration // pause after each word
}

var _ llm.Model = (*Model)(nil)

// New returns the demo model, which pauses for delay after each word. name is its configured name.
func New(name string, delay time.Duration) *Model { return &Model{name, delay} }

// Stream implements [llm.Model].
func (m *Model) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		r := answer(request(req))
		delay := time.Duration(0) // the first word comes without a pause
		for word := range strings.SplitAfterSeq(r.text, " ") {
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
			if err := ctx.Err(); err != nil {
				yield(llm.Event{}, err)
				return
			}
			if word != "" && !yield(llm.Event{Text: word}, nil) {
				return
			}
			delay = m.delay
		}
		yield(llm.Event{Response: m.response(r, req)}, nil)
	}
}

// response returns the complete answer to req.
func (m *Model) response(r reply, req llm.Request) *llm.Response {
	resp := &llm.Response{Model: m.name, Finish: llm.FinishStop,
		Message: llm.Message{Role: llm.Assistant, Text: r.text}}
	if r.tool != "" {
		args, _ := json.Marshal(r.args) // strings can always be encoded
		calls := []llm.ToolCall{{Name: r.tool, Arguments: string(args)}}
		wire.SetIDs(calls, req.Messages)
		resp.Message.ToolCalls, resp.Finish = calls, llm.FinishToolCalls
	}
	return resp
}
