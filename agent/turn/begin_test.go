package turn

import (
	"testing"
	"time"
	_ "time/tzdata"
)

// A time of day is the time on the clocks, also on days on which the clocks change.
func TestLastTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	const form = "2006-01-02 15:04"
	for _, tt := range []struct {
		now  string
		of   time.Duration
		want string
	}{
		{"2026-07-01 04:00", 4 * time.Hour, "2026-07-01 04:00"},
		{"2026-07-01 03:59", 4 * time.Hour, "2026-06-30 04:00"},
		{"2026-01-01 00:00", 0, "2026-01-01 00:00"},
		{"2026-01-01 00:10", 23*time.Hour + 59*time.Minute, "2025-12-31 23:59"},
		{"2026-03-29 12:00", 4 * time.Hour, "2026-03-29 04:00"}, // that day has 23 hours
		{"2026-10-25 12:00", 4 * time.Hour, "2026-10-25 04:00"}, // this day has 25 hours
		{"2026-10-25 03:59", 4 * time.Hour, "2026-10-24 04:00"},
	} {
		now, err := time.ParseInLocation(form, tt.now, berlin)
		if err != nil {
			t.Fatal(err)
		}
		if got := lastTime(now, tt.of).Format(form); got != tt.want {
			t.Errorf("at %s, %s was last at %s, want %s", tt.now, tt.of, got, tt.want)
		}
	}
}
