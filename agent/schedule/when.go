package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A When is the schedule of a job: once, at an interval, or at clock times. The zero value
// never occurs.
type When struct {
	at     int64         // Unix milliseconds; 0: not a single time
	every  time.Duration // 0: not an interval
	anchor int64         // Unix milliseconds; start of the intervals
	cron   string        // "": no clock times
	loc    *time.Location
}

// lastYear is the last year with scheduled times.
const lastYear = 2100

// IsZero reports whether w has no time.
func (w When) IsZero() bool { return w.at == 0 && w.every == 0 && w.cron == "" }

// Once reports whether w has a single time.
func (w When) Once() bool { return w.at != 0 }

// Location returns the time zone of w.
func (w When) Location() *time.Location { return cmp.Or(w.loc, time.UTC) }

// In returns w with clock times in another zone.
func (w When) In(loc *time.Location) When {
	w.loc = loc
	return w
}

// shown is the layout of times for people.
const shown = "2006-01-02 15:04"

// String describes w for people.
func (w When) String() string {
	switch {
	case w.at != 0:
		return "once, " + time.UnixMilli(w.at).In(w.Location()).Format(shown+" MST")
	case w.every != 0:
		return "every " + span(w.every)
	case w.cron != "":
		return fmt.Sprintf("at %s (%s)", w.cron, ShowZone(w.Location()))
	}
	return "never"
}

// span formats a duration for people: 1d12h, 90m.
func span(d time.Duration) string {
	var b strings.Builder
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := d / unit.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d -= n * unit.size
		}
	}
	return cmp.Or(b.String(), "0s")
}

// Next returns the first time after another one, and false if there is none before 2100.
func (w When) Next(after time.Time) (time.Time, bool) { return w.series()(after) }

// series is a function that returns the first time after another one, and false if there
// is none.
type series func(after time.Time) (time.Time, bool)

// series prepares w for repeated use.
func (w When) series() series {
	switch {
	case w.at != 0:
		return func(after time.Time) (time.Time, bool) {
			return time.UnixMilli(w.at).In(w.Location()), w.at > after.UnixMilli()
		}
	case w.every != 0:
		return func(after time.Time) (time.Time, bool) {
			n := max(after.UnixMilli()-w.anchor, 0)/w.every.Milliseconds() + 1
			t := time.UnixMilli(w.anchor + n*w.every.Milliseconds()).In(w.Location())
			return t, t.Year() <= lastYear
		}
	}
	plan, err := compile(w.cron)
	if err != nil { // invalid expression
		return func(time.Time) (time.Time, bool) { return time.Time{}, false }
	}
	return func(after time.Time) (time.Time, bool) { return plan.after(after, w.Location()) }
}

// newest returns the last time of a series that is not after now. known is such a time.
func (next series) newest(known, now time.Time) time.Time {
	// A series of every minute need not be counted over years: if there is a time shortly before
	// now, counting begins there.
	for _, back := range []time.Duration{2 * time.Hour, 48 * time.Hour, 62 * 24 * time.Hour} {
		begin := now.Add(-back)
		if !begin.After(known) {
			break
		}
		if t, ok := next(begin); ok && !t.After(now) {
			known = t
			break
		}
	}
	for t, ok := next(known); ok && !t.After(now); t, ok = next(t) {
		known = t
	}
	return known
}

// tooOften reports whether less than least lies between two times of w. For clock times it compares
// the next 50 of them, without days on which the clock changes.
func (w When) tooOften(now time.Time, least time.Duration) bool {
	if w.every != 0 {
		return w.every < least
	}
	if w.cron == "" {
		return false
	}
	next := When{cron: w.cron}.series()
	last, ok := next(now)
	for i := 0; ok && i < 50; i++ {
		var t time.Time
		if t, ok = next(last); ok && t.Sub(last) < least {
			return true
		}
		last = t
	}
	return false
}

// storedWhen is the JSON form of a When.
type storedWhen struct {
	At     int64  `json:"at,omitempty"`     // Unix milliseconds
	Every  int64  `json:"every,omitempty"`  // milliseconds
	Anchor int64  `json:"anchor,omitempty"` // Unix milliseconds
	Cron   string `json:"cron,omitempty"`
	Zone   string `json:"zone"` // IANA name
}

func (w When) encode() (string, error) {
	b, err := json.Marshal(storedWhen{w.at, w.every.Milliseconds(), w.anchor, w.cron,
		w.Location().String()})
	return string(b), err
}

// zoneCache caches time zones by name.
type zoneCache map[string]*time.Location

func (z zoneCache) decode(text string) (When, error) {
	var s storedWhen
	err := json.Unmarshal([]byte(text), &s)
	if err != nil {
		return When{}, err
	}
	loc, ok := z[s.Zone]
	if !ok {
		if loc, err = time.LoadLocation(s.Zone); err == nil {
			z[s.Zone] = loc
		}
	}
	return When{at: s.At, every: time.Duration(s.Every) * time.Millisecond, anchor: s.Anchor,
		cron: s.Cron, loc: loc}, err
}

// floating returns the wall clock time at t as a UTC time.
func floating(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// instant returns the moment when the wall clock in loc shows wall. If that occurs twice,
// it returns the first. If the clock skips that time, it returns the first moment after
// the gap.
func instant(wall time.Time, loc *time.Location) time.Time {
	// Examine each period between two changes of the clock, in order. No zone differs from UTC
	// by more than a day, so start 26 hours earlier.
	for at := wall.Add(-26 * time.Hour).In(loc); ; {
		start, end := at.ZoneBounds()
		_, offset := at.Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		// On the last day of a leap year, end may be before at: https://go.dev/issue/81583.
		if end.IsZero() || !end.After(at) || t.Before(end) {
			if t.Before(start) { // it lies in the gap before this part
				t = start
			}
			return t.In(loc)
		}
		at = end
	}
}
