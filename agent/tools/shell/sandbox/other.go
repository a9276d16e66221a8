//go:build !linux || (!amd64 && !arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// Find reports that there is no sandbox for this system.
func Find(context.Context, Options) (*Sandbox, error) {
	return nil, fmt.Errorf("sandbox: %w: it needs Linux on amd64 or arm64", ErrUnavailable)
}

// Command always fails: [Find] returns no Sandbox on this system.
func (s *Sandbox) Command(context.Context, Spec) (*Command, error) {
	return nil, fmt.Errorf("sandbox: command: %w", ErrUnavailable)
}

// Outcome always fails: there is no [Command] on this system.
func (c *Command) Outcome() (Outcome, error) {
	return Outcome{}, errors.New("sandbox: outcome: no command has run")
}

// EndOrphans does nothing on this system.
func EndOrphans() int { return 0 }

// Seal always fails on this system.
func Seal() error { return fmt.Errorf("sandbox: seal: %w", ErrUnavailable) }
