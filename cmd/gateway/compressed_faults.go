//go:build faults

package main

import (
	"os"
	"strconv"
	"sync"
	"time"
)

// timeScale is GATEWAY_TIME_SCALE: how many hours of keeping old things pass in one.
var timeScale = sync.OnceValue(func() time.Duration {
	n, err := strconv.ParseInt(os.Getenv("GATEWAY_TIME_SCALE"), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
})

// compressed returns a time after which something old goes: for tests of a day in a minute, only a
// part of d.
func compressed(d time.Duration) time.Duration { return d / timeScale() }
