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

// Command is never reached: [Find] makes no Sandbox here.
func (s *Sandbox) Command(context.Context, Spec) (*Command, error) {
	return nil, fmt.Errorf("sandbox: command: %w", ErrUnavailable)
}

// Outcome is never reached: there is no [Command] here.
func (c *Command) Outcome() (Outcome, error) {
	return Outcome{}, errors.New("sandbox: outcome: no command has run")
}

// EndOrphans has nothing to end here.
func EndOrphans() int { return 0 }

// Main is the supervisor, which does not exist here.
func Main([]string) int { return 1 }

// Seal reports that it can't be done here.
func Seal() error { return fmt.Errorf("sandbox: seal: %w", ErrUnavailable) }
