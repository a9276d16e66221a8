//go:build !faults

package app

import "time"

// compressed returns d. Test builds return a shorter time.
func compressed(d time.Duration) time.Duration { return d }

// impatient returns d. Test builds return a shorter time.
func impatient(d time.Duration) time.Duration { return d }
