package app

import (
	"fmt"
)

// A HomeError is an error about the gateway's home or its workspace.
type HomeError struct {
	Home string
	err  error
}

// NewHomeError returns err as a [HomeError].
func NewHomeError(home string, err error) error { return &HomeError{home, err} }

func (e *HomeError) Error() string { return fmt.Sprintf("home %s: %v", e.Home, e.err) }
func (e *HomeError) Unwrap() error { return e.err }

// A UsageError is a mistake in the configuration or on the command line.
type UsageError struct{ error }

// NewUsageError returns err as a [UsageError].
func NewUsageError(err error) error { return UsageError{err} }

func (e UsageError) Unwrap() error { return e.error }

// Exit codes.
const (
	ExitFailure = 1
	ExitUsage   = 2 // wrong configuration or command line
)
