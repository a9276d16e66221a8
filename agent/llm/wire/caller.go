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

// A Caller has the settings that calls of every kind share.
type Caller struct {
	Name    string        // configured name of the model
	secrets []string      // strings that errors must not contain
	Idle    time.Duration // how long the provider may send nothing
}

// NewCaller returns the caller of the model with this name. It removes the secrets from errors.
func NewCaller(name string, idle time.Duration, secrets ...string) Caller {
	c := Caller{Name: name, Idle: idle}
	for _, s := range secrets {
		if len(s) >= leastSecret {
			c.secrets = append(c.secrets, s)
		}
	}
	return c
}

// leastSecret is the length, in bytes, of the shortest secret that is removed from errors. A
// shorter value of a header occurs in many texts by chance.
const leastSecret = 6

// Failed returns the error to report for err: the error of ctx if ctx has ended, and otherwise an
// *llm.Error whose text contains neither the URL nor a secret.
func (c Caller) Failed(ctx, callCtx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e := &llm.Error{Kind: llm.Unavailable, Model: c.Name, Err: err}
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		e.Err = urlErr.Err // the text of urlErr contains the URL
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
