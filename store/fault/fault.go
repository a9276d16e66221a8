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

// A WAL says how far a write-ahead log reaches. Here it says nothing.
type WAL struct{}

// Frames returns how far the log of the database at path reaches now.
func Frames(path string) WAL { return WAL{} }

// Syncing notes that a commit begins that waits for the disk. Here it does nothing.
func Syncing(path string, w WAL) {}

// Committed ends what Syncing has begun. Here it does nothing.
func Committed(path string) {}

// Synced notes that the log of the database at path is on the disk as far as w. Here it does
// nothing.
func Synced(path string, w WAL) {}
