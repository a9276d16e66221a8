package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A When says when a job runs: once, at an interval, or at times of the clock. The zero value is
// never.
type When struct {
	at     int64         // Unix milliseconds; 0: not once
	every  time.Duration // 0: at no interval
	anchor int64         // Unix milliseconds, from which intervals count
	cron   string        // "": at no times of the clock
	loc    *time.Location
}

// lastYear bounds all times.
const lastYear = 2100

// IsZero reports whether w has no time.
func (w When) IsZero() bool { return w.at == 0 && w.every == 0 && w.cron == "" }

// Once reports whether w has one time only.
func (w When) Once() bool { return w.at != 0 }

// Location returns the zone in which w was said.
func (w When) Location() *time.Location { return cmp.Or(w.loc, time.UTC) }

// In returns w with times of the clock in another zone.
func (w When) In(loc *time.Location) When {
	w.loc = loc
	return w
}

// shown is how times are shown to people.
const shown = "2006-01-02 15:04"

// String describes w for people.
func (w When) String() string {
	switch {
	case w.at != 0:
		return "once, " + time.UnixMilli(w.at).In(w.Location()).Format(shown+" MST")
	case w.every != 0:
		return "every " + span(w.every)
	case w.cron != "":
		return fmt.Sprintf("at %s (%s)", w.cron, w.Location())
	}
	return "never"
}

// span writes a duration as people do: 1d12h, 90m.
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

// Next returns the first time after another one, and false if there is none until 2100.
func (w When) Next(after time.Time) (time.Time, bool) { return w.series()(after) }

// A series returns the first time of it after another one, and false if there is none.
type series func(after time.Time) (time.Time, bool)

// series prepares w for more than one look.
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
	if err != nil { // no expression
		return func(time.Time) (time.Time, bool) { return time.Time{}, false }
	}
	return func(after time.Time) (time.Time, bool) { return plan.after(after, w.Location()) }
}

// newest returns the last time of a series that is not after now, given one that is not.
func (next series) newest(known, now time.Time) time.Time {
	// A series of every minute need not be counted over years: it is enough to begin shortly before
	// now, if there is a time since then.
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

// tooOften reports whether less than least lies between two times of w. Times of the clock are
// judged by the next 50 of them, and not by days on which the clock is changed.
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

// storedWhen is how a When is written down.
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

// A zoner finds zones by their names, each once.
type zoner map[string]*time.Location

func (z zoner) load(name string) (*time.Location, error) {
	if loc, ok := z[name]; ok {
		return loc, nil
	}
	loc, err := time.LoadLocation(name)
	if err == nil {
		z[name] = loc
	}
	return loc, err
}

func (z zoner) decode(text string) (When, error) {
	var s storedWhen
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return When{}, err
	}
	loc, err := z.load(s.Zone)
	return When{at: s.At, every: time.Duration(s.Every) * time.Millisecond, anchor: s.Anchor,
		cron: s.Cron, loc: loc}, err
}

// floating returns what the clock on the wall shows at t, as a time of UTC.
func floating(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// instant returns when the clock on the wall in loc shows what wall does: for the first time, if it
// does so twice, and the first moment after it, if the clock is put forward over it.
func instant(wall time.Time, loc *time.Location) time.Time {
	// Each part of time between two changes of the clock is looked at in its order. No zone is
	// further from UTC than a day, so that this one begins before.
	for at := wall.Add(-26 * time.Hour).In(loc); ; {
		start, end := at.ZoneBounds()
		_, offset := at.Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || t.Before(end) {
			if t.Before(start) { // it lies in the gap before this part
				t = start
			}
			return t.In(loc)
		}
		at = end
	}
}
