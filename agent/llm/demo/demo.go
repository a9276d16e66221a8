// Package demo is the built-in model for people who have no key yet: a table of rules, not a
// language model.
//
// It shows the whole machine at work with no network: [New] returns the real
// client of package openai, whose HTTP transport leads to a [Handler] in memory, which
// speaks the chat completions protocol, streams and calls tools. A new trick is
// a line in the table of rules.
//
// It keeps no state: all that it knows of a conversation is in the request. The
// package owns no tables.
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
	// WordDelay is the pause after each word; default 10 ms, negative for none.
	WordDelay time.Duration

	Logger *slog.Logger // default discards
}

// New returns the demo model under the name that it has in the configuration.
func New(name string, opts *Options) *openai.Model {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	handler := Handler{WordDelay: cmp.Or(o.WordDelay, defaultDelay)}
	return openai.New(name, modelID, &openai.Options{
		BaseURL: "http://demo.invalid/v1", // never looked up
		HTTP:    &http.Client{Transport: memoryTransport{handler}},
		Logger:  o.Logger,
	})
}
