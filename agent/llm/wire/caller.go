package wire

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

// A Caller is what calls of every sort have in common.
type Caller struct {
	Name    string        // of the model, as configured
	secrets []string      // that no error may show
	Idle    time.Duration // how long the provider may keep silent
}

// NewCaller returns the caller of a model with this name. No error shows one of the secrets.
func NewCaller(name string, idle time.Duration, secrets ...string) Caller {
	c := Caller{Name: name, Idle: idle}
	for _, s := range secrets {
		if len(s) >= leastSecret {
			c.secrets = append(c.secrets, s)
		}
	}
	return c
}

// leastSecret is the length from which a secret is looked for in errors, in bytes: a shorter
// value of a header stands in many by chance.
const leastSecret = 6

// Failed returns the error to report for err: that of ctx once it has ended, else
// an *llm.Error without URL and key.
func (c Caller) Failed(ctx, callCtx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &llm.Error{Kind: llm.Unavailable, Model: c.Name, Err: err}
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		e.Err = urlErr.Err // its text has the URL
		if urlErr.Op == "parse" {
			e.Kind = llm.BadRequest
		}
	}
	var netErr net.Error
	f := AsFailure(err)
	switch {
	case context.Cause(callCtx) == ErrIdle:
		e.Kind, e.Err = llm.TimedOut, fmt.Errorf("%w (%v)", ErrIdle, c.Idle)
	case f != nil:
		for _, s := range c.secrets {
			f.Message = strings.ReplaceAll(f.Message, s, "[key]")
		}
		e.Kind, e.After = f.Kind(), f.After
	case errors.As(err, &netErr) && netErr.Timeout():
		e.Kind = llm.TimedOut
	}
	return e
}
