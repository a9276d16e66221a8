// Package demo is a built-in model for users who have no API key yet. It is a table of rules, not a
// language model.
//
// It exercises the complete gateway without a network. [New] returns the real client of package
// openai; its HTTP transport calls a [Handler] in memory, which speaks the chat completions
// protocol, streams and calls tools. To add an ability, add a line to the table of rules.
//
// The model has no state: it knows a conversation only from the request. The package has no
// database tables.
package demo

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"gateway/agent/llm/openai"
)

const (
	modelID      = "demo"
	defaultDelay = 10 * time.Millisecond
)

// Options are the optional settings of the demo model.
type Options struct {
	// WordDelay is the pause after each word. The default is 10 ms; a negative value means no
	// pause.
	WordDelay time.Duration

	Logger *slog.Logger // discards by default
}

// New returns the demo model. name is its configured name.
func New(name string, opts *Options) *openai.Model {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	handler := Handler{WordDelay: cmp.Or(o.WordDelay, defaultDelay)}
	return openai.New(name, modelID, &openai.Options{
		BaseURL: "http://demo.invalid/v1", // this name is never resolved
		HTTP:    &http.Client{Transport: memoryTransport{handler}},
		Logger:  o.Logger,
	})
}
