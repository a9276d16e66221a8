package telemetry

import (
	"testing"
	"time"
)

// The garbage collector waits longer only while it runs often, and only while the heap is small.
func TestCollector(t *testing.T) {
	const mb = 1 << 20
	var c collector
	now := time.Now()
	run := func(pause time.Duration, live uint64) int {
		now = now.Add(pause)
		return c.ran(now, live)
	}
	for i := range busyRuns - 1 {
		if got := run(10*time.Millisecond, 8*mb); got != defaultPercent {
			t.Fatalf("run %d: %d %%, want %d", i, got, defaultPercent)
		}
	}
	for _, test := range []struct {
		pause time.Duration
		live  uint64
		want  int
	}{
		{10 * time.Millisecond, 8 * mb, maxPercent},
		{busyPause, 10 * mb, 300},
		{busyPause, 14 * mb, 150},
		{busyPause, 60 * mb, defaultPercent},
		{busyPause, 11 * mb, 250},
		{busyPause + time.Second, 8 * mb, defaultPercent},
		{10 * time.Millisecond, 8 * mb, defaultPercent},
	} {
		if got := run(test.pause, test.live); got != test.want {
			t.Errorf("%d MB after %v: %d %%, want %d", test.live/mb, test.pause, got, test.want)
		}
	}
}
