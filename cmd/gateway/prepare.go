//go:build !faults

package main

// prepare makes this process ready for what only tests need: nothing, in this build.
func prepare() {}
