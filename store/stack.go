package store

import "runtime"

// GrowStack prepares the calling goroutine for transactions. Call it at the beginning of a
// goroutine that is started for a single piece of work. SQLite's functions need a stack of 16 KB.
// The runtime would otherwise grow the stack in up to three steps, and copy many frames in each
// step.
//
//go:noinline
func GrowStack() {
	var frame [9 << 10]byte // with it, the stack must have more than 8 KB
	runtime.KeepAlive(&frame)
}
