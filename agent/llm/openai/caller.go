package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"gateway/agent/llm"
)

// A caller is what calls of every sort have in common.
type caller struct {
	name    string        // of the model, as configured
	secrets []string      // that no error may show
	idle    time.Duration // how long the provider may keep silent
}

// newCaller returns a caller that waits for idle if the options do not say how long.
func newCaller(name string, o *Options, idle time.Duration) caller {
	c := caller{name: name, idle: cmp.Or(o.IdleTimeout, idle)}
	for _, s := range append(slices.Collect(maps.Values(o.Headers)), o.Key) {
		if len(s) >= leastSecret {
			c.secrets = append(c.secrets, s)
		}
	}
	return c
}

// leastSecret is the length from which a secret is looked for in errors, in bytes: a shorter
// value of a header stands in many by chance.
const leastSecret = 6

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
		for _, s := range c.secrets {
			f.message = strings.ReplaceAll(f.message, s, "[key]")
		}
		e.Kind, e.After = f.kind(), f.after
	case errors.As(err, &netErr) && netErr.Timeout():
		e.Kind = llm.TimedOut
	}
	return e
}
