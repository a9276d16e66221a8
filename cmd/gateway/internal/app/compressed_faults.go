//go:build faults

package app

import (
	"os"
	"strconv"
	"sync"
	"time"
)

// timeScale is GATEWAY_TIME_SCALE: how many hours pass in one, for what is kept and for heartbeats.
var timeScale = sync.OnceValue(func() time.Duration { return scale("GATEWAY_TIME_SCALE") })

// healthScale is GATEWAY_HEALTH_SCALE: how much sooner than else the gateway is not ready.
var healthScale = sync.OnceValue(func() time.Duration { return scale("GATEWAY_HEALTH_SCALE") })

// scale returns a number of the environment, 1 if it is not set.
func scale(name string) time.Duration {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}

// compressed returns a time that something takes: for tests of a day in a minute, only a
// part of d.
func compressed(d time.Duration) time.Duration { return d / timeScale() }

// impatient returns how long something may take before it counts as trouble: for tests that make
// trouble, only a part of d.
func impatient(d time.Duration) time.Duration { return d / healthScale() }
