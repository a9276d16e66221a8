//go:build faults

package main

import (
	"os"
	"strconv"
	"sync"
	"time"
)

// timeScale is GATEWAY_TIME_SCALE: how many hours pass in one, for what is kept and for heartbeats.
var timeScale = sync.OnceValue(func() time.Duration {
	n, err := strconv.ParseInt(os.Getenv("GATEWAY_TIME_SCALE"), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
})

// compressed returns a time that something takes: for tests of a day in a minute, only a
// part of d.
func compressed(d time.Duration) time.Duration { return d / timeScale() }
