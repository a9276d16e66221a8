package atomicfile

import (
	"testing"
	"time"
)

// A file that was just changed may change again without a new time: on a fine file system for some
// milliseconds, on a coarse one for seconds.
func TestSettled(t *testing.T) {
	second := time.Unix(1_800_000_000, 0)
	fine := second.Add(123_456_789)
	for _, tt := range []struct {
		name     string
		modified time.Time
		age      time.Duration
		want     bool
	}{
		{"fine, at once", fine, 0, false},
		{"fine, after a tick of the clock", fine, 10 * time.Millisecond, false},
		{"fine, later", fine, 200 * time.Millisecond, true},
		{"coarse, later", second, 200 * time.Millisecond, false},
		{"coarse, after its two seconds", second, 2 * time.Second, false},
		{"coarse, much later", second, 4 * time.Second, true},
		{"from the future", fine, -time.Millisecond, false},
		{"from a clock that is ahead", fine, -time.Hour, true},
	} {
		if got := Settled(tt.modified, tt.modified.Add(tt.age)); got != tt.want {
			t.Errorf("%s: Settled = %v, want %v", tt.name, got, tt.want)
		}
	}
}
