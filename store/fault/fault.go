//go:build !faults

// Package fault ends or holds up the process between two steps of a message, for the tests that
// prove that nothing is lost there, and that it is seen. Only builds with the tag "faults" contain
// it.
//
// The package owns no tables.
package fault

import "context"

// Point marks the place between two steps called name. Here it does nothing.
func Point(name string) {}

// Hold marks a place called name where the process may be held up. Here it does nothing.
func Hold(ctx context.Context, name string) {}
