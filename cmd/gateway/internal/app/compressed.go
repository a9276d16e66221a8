//go:build !faults

package app

import "time"

// compressed returns a time that something takes: d, in this build.
func compressed(d time.Duration) time.Duration { return d }

// impatient returns how long something may take before it counts as trouble: d, in this build.
func impatient(d time.Duration) time.Duration { return d }
