package app

import (
	"fmt"
)

// A HomeError is trouble with the gateway's home or its workspace.
type HomeError struct {
	Home string
	err  error
}

// InHome returns trouble with a home.
func InHome(home string, err error) error { return &HomeError{home, err} }

func (e *HomeError) Error() string { return fmt.Sprintf("home %s: %v", e.Home, e.err) }
func (e *HomeError) Unwrap() error { return e.err }

// A UsageError is a mistake in the configuration or on the command line.
type UsageError struct{ error }

// BadUsage returns a mistake in the configuration or on the command line.
func BadUsage(err error) error { return UsageError{err} }

func (e UsageError) Unwrap() error { return e.error }

// The exit codes.
const (
	ExitFailure = 1
	ExitUsage   = 2 // a configuration or a command line that is wrong
)
