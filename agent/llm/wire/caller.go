package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
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

// NewCaller returns the caller of the model with this name. It removes the key and the values of
// headers from errors.
func NewCaller(name string, idle time.Duration, key string, headers map[string]string) Caller {
	secrets := append(slices.Collect(maps.Values(headers)), key)
	return Caller{Name: name, Idle: idle, secrets: slices.DeleteFunc(secrets,
		func(s string) bool { return len(s) < leastSecret })}
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
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		e.Err = urlErr.Err // the text of urlErr contains the URL
		if urlErr.Op == "parse" {
			e.Kind = llm.BadRequest
		}
	}
	var netErr net.Error
	f := asFailure(err)
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

// FailedRequest is Failed for a call with req. If the provider blames images, thoughts or tools
// although req has none, it changes the error's kind. It does so, too, if the provider asks for
// patience although req alone exceeds the limit of a minute, or if a proxy limits the bytes of req.
func (c Caller) FailedRequest(ctx, callCtx context.Context, err error, req llm.Request) error {
	err = c.Failed(ctx, callCtx, err)
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		return err
	}
	blameless := false
	switch e.Kind {
	case llm.RateLimited:
		if limit := asFailure(err).perMinute(); limit > 0 && textSize(req)/bytesPerToken > limit {
			e.Kind, e.After = llm.ContextTooLong, 0
		}
	case llm.ContextTooLong:
		if f := asFailure(err); f.Status == http.StatusRequestEntityTooLarge && hasImages(req) {
			e.Kind = llm.TooManyImages // they are most of the bytes
		}
	case llm.NoImages, llm.TooManyImages:
		blameless = !hasImages(req)
	case llm.BadThoughts:
		blameless = !hasExtra(req)
	case llm.NoTools:
		blameless = len(req.Tools) == 0
	}
	if blameless {
		e.Kind = llm.BadRequest
	}
	return err
}

// hasExtra reports whether req has fields that only a provider understands.
func hasExtra(req llm.Request) bool {
	return slices.ContainsFunc(req.Messages, func(m llm.Message) bool {
		return len(m.Extra) > 0 || slices.ContainsFunc(m.ToolCalls, func(c llm.ToolCall) bool {
			return len(c.Extra) > 0
		})
	})
}

// hasImages reports whether req has images that are sent.
func hasImages(req llm.Request) bool {
	return slices.ContainsFunc(req.Messages, func(m llm.Message) bool {
		return m.Role == llm.User && slices.ContainsFunc(m.Images, func(im llm.Image) bool {
			return len(im.Data) > 0
		})
	})
}

// bytesPerToken is about how many bytes of text a token has.
const bytesPerToken = 3

// textSize returns the size of the texts in req, in bytes.
func textSize(req llm.Request) (n int) {
	for _, m := range req.Messages {
		n += len(m.Text)
		for _, c := range m.ToolCalls {
			n += len(c.Arguments)
		}
	}
	for _, t := range req.Tools {
		n += len(t.Description) + len(t.Schema)
	}
	return n
}
