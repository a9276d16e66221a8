//go:build !faults

package app

import "time"

// compressed returns d. Test builds return a shorter time.
func compressed(d time.Duration) time.Duration { return d }

// testableTimeout returns d. Test builds return a shorter time.
func testableTimeout(d time.Duration) time.Duration { return d }

// Prepare does nothing in this build. Test builds prepare the process for tests.
func Prepare() {}
