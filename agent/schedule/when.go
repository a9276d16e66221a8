package schedule

import "time"

// A When says when a job runs: once, at an interval, or at times of the clock. The zero value is
// never. It is a value, whose text form is its JSON.
type When struct{}

// String describes w for people.
func (w When) String() string { return "" }

// IsZero reports whether w is no time at all.
func (w When) IsZero() bool { return true }

// Once reports whether w has one time only.
func (w When) Once() bool { return false }

// Next returns the first time after another one, and false if there is none until 2100.
func (w When) Next(after time.Time) (time.Time, bool) { return time.Time{}, false }

// ParseAt returns the one time that text names: RFC 3339, "2026-11-22 09:00", "09:00" (the next
// one), "tomorrow 09:00", "monday 9am", "in 20m" or "20 minutes". It must be after now.
func ParseAt(text string, now time.Time, loc *time.Location) (When, error) {
	return When{}, errLater
}

// ParseEvery returns the interval that text names, such as "90m", "1h30m", "1d" or "2w": anchor and
// each whole number of intervals after it. It must not be shorter than least.
func ParseEvery(text string, anchor time.Time, least time.Duration) (When, error) {
	return When{}, errLater
}

// ParseCron returns the times of a cron expression of 5 fields, or a tag such as @daily, in a zone.
//
// The time on the wall is kept. If the clock is put forward over it, it comes once, at the first
// moment after the gap; if it comes twice as the clock is put back, the first one counts.
func ParseCron(expr string, loc *time.Location) (When, error) { return When{}, errLater }
