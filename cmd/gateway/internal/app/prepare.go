//go:build !faults

package app

// Prepare does nothing in this build. Test builds prepare the process for tests.
func Prepare() {}
