//go:build !faults

// Package fault kills or suspends the process at chosen points in the handling of a message. Tests
// use it to prove that nothing is lost there. Only builds with the tag "faults" contain the
// implementation; other builds contain empty functions.
//
// The package owns no tables.
package fault

import "context"

// Point marks a point between two steps. In this build it does nothing.
func Point(name string) {}

// Hold marks a point where the process may be suspended. In this build it does nothing.
func Hold(ctx context.Context, name string) {}

// A WAL is a position in a write-ahead log. In this build it is empty.
type WAL struct{}

// Frames returns the end of the write-ahead log of the database at path.
func Frames(path string) WAL { return WAL{} }

// Syncing records that a commit begins that waits for the disk. In this build it does nothing.
func Syncing(path string, w WAL) {}

// Committed records that this commit has ended. In this build it does nothing.
func Committed(path string) {}

// Synced records that the write-ahead log of the database at path is on the disk up to w. In this
// build it does nothing.
func Synced(path string, w WAL) {}
