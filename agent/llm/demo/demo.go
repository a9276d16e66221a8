// Package demo is a built-in model for users who have no API key yet. It is a table of rules, not a
// language model.
//
// It exercises the complete gateway without a network. [New] returns the real client of package
// openai; its HTTP transport answers in memory. It speaks the chat completions protocol, streams
// and calls tools. To add an ability, add a line to the table of rules.
//
// The model has no state: it knows a conversation only from the request. The package has no
// database tables.
package demo

import (
	"net/http"
	"time"

	"gateway/agent/llm/openai"
)

const (
	modelID = "demo"

	// DefaultDelay is the usual pause after each word.
	DefaultDelay = 10 * time.Millisecond
)

// New returns the demo model, which pauses for delay after each word. name is its configured name.
func New(name string, delay time.Duration) *openai.Model {
	return openai.New(name, modelID, &openai.Options{
		BaseURL: "http://demo.invalid/v1", // this name is never resolved
		HTTP:    &http.Client{Transport: transport{delay}},
	})
}
