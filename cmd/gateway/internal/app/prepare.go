//go:build !faults

package app

// Prepare makes this process ready for what only tests need: nothing, in this build.
func Prepare() {}
