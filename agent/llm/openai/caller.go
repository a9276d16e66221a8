package openai

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"gateway/agent/llm"
)

// A caller is what calls of every sort have in common.
type caller struct {
	name string // of the model, as configured
	key  string
	idle time.Duration // how long the provider may keep silent
}

// failed returns the error to report for err: that of ctx once it has ended, else
// an *llm.Error without URL and key.
func (c caller) failed(ctx, callCtx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &llm.Error{Kind: llm.Unavailable, Model: c.name, Err: err}
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		e.Err = urlErr.Err // its text has the URL
		if urlErr.Op == "parse" {
			e.Kind = llm.BadRequest
		}
	}
	var netErr net.Error
	f := asFailure(err)
	switch {
	case context.Cause(callCtx) == errIdle:
		e.Kind, e.Err = llm.TimedOut, fmt.Errorf("%w (%v)", errIdle, c.idle)
	case f != nil:
		if c.key != "" {
			f.message = strings.ReplaceAll(f.message, c.key, "[key]")
		}
		e.Kind, e.After = f.kind(), f.after
	case errors.As(err, &netErr) && netErr.Timeout():
		e.Kind = llm.TimedOut
	}
	return e
}
