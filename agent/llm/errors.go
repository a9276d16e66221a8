package llm

import (
	"fmt"
	"time"
)

// A Kind classifies an [Error] by what the caller can do about it.
type Kind string

// The kinds of errors.
const (
	RateLimited    Kind = "rate limited"     // too many requests; wait
	Overloaded     Kind = "overloaded"       // the provider is overloaded (503, 529)
	Unavailable    Kind = "unavailable"      // no connection, 5xx, truncated stream
	TimedOut       Kind = "timed out"        // the provider sent nothing for too long
	Unauthorized   Kind = "unauthorized"     // the key is missing or wrong
	Forbidden      Kind = "forbidden"        // the key is valid, but not allowed to do this (403)
	NotFound       Kind = "not found"        // unknown model or address (404)
	OutOfQuota     Kind = "out of quota"     // the account has no credit left
	ContextTooLong Kind = "context too long" // the conversation exceeds the context window
	NoImages       Kind = "no images"        // the model refuses the images; ask without Data
	TooManyImages  Kind = "too many images"  // the model takes fewer images; ask with the newest
	BadThoughts    Kind = "bad thoughts"     // it refuses earlier thoughts; ask without Extra
	NoTools        Kind = "no tools"         // the model can't call tools; ask without Tools
	ContentRefused Kind = "content refused"  // the provider's content filter refused it
	BadRequest     Kind = "bad request"      // the provider does not understand the request
)

// An Error is a failed call to a model. Its text is for logs, not for users, and contains no
// secrets.
type Error struct {
	Kind  Kind
	Model string        // configured name
	After time.Duration // how long the provider asks the caller to wait; 0 if unknown
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

// Temporary reports whether the same call is likely to succeed a little later.
func (k Kind) Temporary() bool {
	switch k {
	case RateLimited, Overloaded, Unavailable, TimedOut:
		return true
	}
	return false
}
