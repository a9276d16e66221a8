package collector

import (
	"testing"
	"time"
)

// The garbage collector waits for more growth only while it runs often and the heap is small.
func TestCollector(t *testing.T) {
	const mb = 1 << 20
	var c collector
	now := time.Now()
	run := func(pause time.Duration, live, stacks uint64) int {
		now = now.Add(pause)
		return c.ran(now, live, live+stacks)
	}
	for i := range busyRuns - 1 {
		if got := run(10*time.Millisecond, 8*mb, mb); got != defaultPercent {
			t.Fatalf("run %d: %d %%, want %d", i, got, defaultPercent)
		}
	}
	for _, test := range []struct {
		pause        time.Duration
		live, stacks uint64
		want         int
	}{
		{10 * time.Millisecond, 4 * mb, mb, maxPercent},
		{busyPause, 8 * mb, 2 * mb, 300},
		{busyPause, 10 * mb, 40 * mb, defaultPercent},
		{busyPause, 14 * mb, 2 * mb, 150},
		{busyPause, 60 * mb, 0, defaultPercent},
		{busyPause, 11 * mb, 0, 250},
		{busyPause + time.Second, 8 * mb, 0, defaultPercent},
		{10 * time.Millisecond, 8 * mb, 0, defaultPercent},
	} {
		if got := run(test.pause, test.live, test.stacks); got != test.want {
			t.Errorf("%d MB and stacks of %d MB after %v: %d %%, want %d", test.live/mb,
				test.stacks/mb, test.pause, got, test.want)
		}
	}
}

// Memory is given back after some runs, also if they are far apart.
func TestTakeGrown(t *testing.T) {
	var c collector
	now := time.Now()
	for i := range 3 * grownRuns {
		now = now.Add(time.Minute)
		c.ran(now, 1<<20, 1<<20)
		if got, want := c.takeGrown(), (i+1)%grownRuns == 0; got != want {
			t.Errorf("after %d runs, there is memory to give back: %v, want %v", i+1, got, want)
		}
	}
}
