package llm

import (
	"fmt"
	"time"
)

// A Kind is the cause of an [Error], as far as it decides what to do next.
type Kind string

// The kinds of errors.
const (
	RateLimited    Kind = "rate limited"     // too many requests; wait
	Overloaded     Kind = "overloaded"       // the provider has too much to do (503, 529)
	Unavailable    Kind = "unavailable"      // no connection, 5xx, truncated stream
	TimedOut       Kind = "timed out"        // no byte for too long
	Unauthorized   Kind = "unauthorized"     // the key is missing or wrong
	Forbidden      Kind = "forbidden"        // the key is right, but must not do this (403)
	NotFound       Kind = "not found"        // no such model or address (404)
	OutOfQuota     Kind = "out of quota"     // the account has no money left
	ContextTooLong Kind = "context too long" // the conversation exceeds the model's window
	NoImages       Kind = "no images"        // the model takes none, or not these: ask without Data
	ContentRefused Kind = "content refused"  // the provider's filter stopped it
	BadRequest     Kind = "bad request"      // the provider does not understand the request
)

// An Error is a failed call to a model. Its text is for logs, not for people,
// and holds no secrets.
type Error struct {
	Kind  Kind
	Model string        // as configured
	After time.Duration // how long the provider asks to wait; 0 if it does not say
	Err   error         // cause
}

func (e *Error) Error() string {
	s := fmt.Sprintf("llm: %s: %s", e.Model, e.Kind)
	if e.After > 0 {
		s += " for " + e.After.String()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Passing reports whether the same call may well succeed a little later.
func (k Kind) Passing() bool {
	switch k {
	case RateLimited, Overloaded, Unavailable, TimedOut:
		return true
	}
	return false
}
