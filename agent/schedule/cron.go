package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"

	"gateway/store/plaintext"
)

// maxCron is the greatest length of an expression, in bytes.
const maxCron = 200

// ParseCron returns the times of a cron expression of 5 fields, or a tag such as @daily, in a zone.
// Besides lists, ranges, steps and names, a day may be L (the last one of the month) or 15W (the
// weekday that is nearest to the 15th), and a weekday 5L (the last Friday) or 1#2 (the second
// Monday).
//
// The expression describes wall clock times. If the clock skips such a time when it is put forward,
// the job runs at the first moment after the gap. If the time occurs twice when the clock is put
// back, the job runs at the first occurrence.
func ParseCron(expr string, loc *time.Location) (When, error) {
	expr = strings.Join(strings.Fields(expr), " ")
	if len(expr) > maxCron {
		return When{}, fmt.Errorf("a cron expression has %d bytes at most", maxCron)
	}
	p, err := compile(expr)
	if err != nil {
		return When{}, fmt.Errorf("%q is not a cron expression: %w", expr, err)
	}
	// Every date that can occur at all occurs in the 100 years before lastYear.
	if _, ok := p.next(time.Date(lastYear-100, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return When{}, fmt.Errorf("%q never comes: there is no such date", expr)
	}
	return When{cron: expr, loc: loc}, nil
}

// field describes one field of an expression.
type field struct {
	name        string
	least, most int
	names       string                // with a space around each
	special     func() *regexp.Regexp // other forms than numbers, ranges and steps; or nil
}

var cronFields = [5]field{
	{name: "minute", most: 59},
	{name: "hour", most: 23},
	{name: "day", least: 1, most: 31, names: " L W ",
		special: plaintext.Pattern(`^(L|\d{1,2}W)$`)},
	{name: "month", least: 1, most: 12,
		names: " JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC "},
	{name: "weekday", most: 7,
		names:   " SUN MON TUE WED THU FRI SAT L SUNL MONL TUEL WEDL THUL FRIL SATL ",
		special: plaintext.Pattern(`^[0-7](L|#[1-5])$`)},
}

var (
	cronPart  = plaintext.Pattern(`^(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?$`)
	cronWords = plaintext.Pattern(`[A-Z]+`)
)

// plan is a parsed expression.
type plan struct {
	minutes, hours, months uint64   // one bit for each matching number
	date                   []string // the segments with which gronx checks a date

	// days caches the matching days of months, by the first weekday of the month and its
	// number of days above 28.
	days [7][4]uint32
}

// compile parses an expression. It refuses forms that gronx interprets inconsistently, and
// forms that are most likely mistakes.
func compile(expr string) (*plan, error) {
	if n := len(strings.Fields(expr)); n != 5 && !strings.HasPrefix(expr, "@") {
		return nil, fmt.Errorf("want 5 fields (minute hour day month weekday), not %d; there are "+
			"no seconds and no years", n)
	}
	segments, err := gronx.Segments(expr)
	if err != nil || len(segments) != 6 || segments[0] != "0" {
		return nil, errors.New("want @yearly, @monthly, @weekly, @daily, @hourly or 5 fields")
	}
	if !strings.HasPrefix(expr, "@") {
		for i, raw := range strings.Fields(strings.ToUpper(expr)) {
			if err := cronFields[i].check(raw, segments[i+1]); err != nil {
				return nil, fmt.Errorf("%s %q: %w", cronFields[i].name, plaintext.Clip(raw, 40), err)
			}
		}
	}
	p := &plan{date: []string{"*", "*", "*", segments[3], "*", segments[5]}}
	var errs [3]error
	p.minutes, errs[0] = due(segments[1], 1, 60, func(n int) time.Time {
		return time.Date(2000, 1, 1, 0, n, 0, 0, time.UTC)
	})
	p.hours, errs[1] = due(segments[2], 2, 24, func(n int) time.Time {
		return time.Date(2000, 1, 1, n, 0, 0, 0, time.UTC)
	})
	p.months, errs[2] = due(segments[4], 4, 13, func(n int) time.Time {
		return time.Date(2000, time.Month(max(n, 1)), 1, 0, 0, 0, 0, time.UTC)
	})
	return p, cmp.Or(errs[:]...)
}

// check returns an error for an invalid field. raw is the field as written, segment has
// numbers instead of names.
func (f *field) check(raw, segment string) error {
	for _, word := range cronWords().FindAllString(raw, -1) {
		if !strings.Contains(f.names, " "+word+" ") {
			return fmt.Errorf("%s is not allowed there", word)
		}
	}
	if segment == "?" && f.special != nil {
		return nil
	}
	for part := range strings.SplitSeq(segment, ",") {
		if f.special != nil && f.special().MatchString(part) {
			part = strings.TrimRight(part, "LW") // leave the number
			part, _, _ = strings.Cut(part, "#")
			if part == "" {
				continue
			}
		}
		m := cronPart().FindStringSubmatch(part)
		if m == nil {
			return errors.New("want *, a number, a range such as 1-5, a step such as */2, or a " +
				"list of these")
		}
		if err := f.checkNumbers(m[1], m[2], m[3]); err != nil {
			return err
		}
	}
	return nil
}

// checkNumbers returns an error if a range's first number, last number or step is out of
// bounds. Each may be "".
func (f *field) checkNumbers(first, last, step string) error {
	// A missing number counts as 0.
	from, _ := strconv.Atoi(first)
	to, _ := strconv.Atoi(last)
	width, _ := strconv.Atoi(step)
	switch {
	case first != "" && (from < f.least || from > f.most), last != "" && to > f.most:
		return fmt.Errorf("want numbers from %d to %d", f.least, f.most)
	case last != "" && to < from && (f.most != 7 || from != 7):
		return fmt.Errorf("the range %s-%s runs backwards: write two", first, last)
	case step != "" && (width < 1 || width > f.most-f.least):
		return fmt.Errorf("want a step from 1 to %d; for an interval use every", f.most-f.least)
	}
	return nil
}

// due returns which of n numbers match a segment. at returns a time that has the number in
// the segment's position.
func due(segment string, position, n int, at func(int) time.Time) (uint64, error) {
	if segment == "*" {
		return 1<<n - 1, nil
	}
	var c gronx.SegmentChecker
	var set uint64
	for i := range n {
		c.SetRef(at(i))
		ok, err := c.CheckDue(segment, position)
		if err != nil {
			return 0, err
		}
		if ok {
			set |= 1 << i
		}
	}
	return set, nil
}

// after returns the first time of p after t in a zone.
func (p *plan) after(t time.Time, loc *time.Location) (time.Time, bool) {
	// Later wall clock times are never earlier moments, so no time before t's wall clock time
	// is missed. Times after it may have passed already, when the clock was set back.
	for wall := floating(t.In(loc)); ; {
		var ok bool
		if wall, ok = p.next(wall); !ok {
			return time.Time{}, false
		}
		if due := instant(wall, loc); due.After(t) {
			return due, true
		}
	}
}

// next returns the first time of p after another one, both as wall clock times without
// changes of the clock.
func (p *plan) next(after time.Time) (time.Time, bool) {
	t := after.Truncate(time.Minute).Add(time.Minute)
	first, hour, minute := t.Day(), t.Hour(), t.Minute()
	month := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	for ; month.Year() <= lastYear; month = month.AddDate(0, 1, 0) {
		if p.months&(1<<month.Month()) != 0 {
			// The shifts clear the days before first; the last step of the loop clears the day just
			// tried.
			for days := p.daysOf(month) >> first << first; days != 0; days &= days - 1 {
				day := bits.TrailingZeros32(days)
				if day > first {
					hour, minute = 0, 0
				}
				if n, ok := p.minuteOf(hour, minute); ok {
					return month.AddDate(0, 0, day-1).Add(time.Duration(n) * time.Minute), true
				}
			}
		}
		first, hour, minute = 0, 0, 0
	}
	return time.Time{}, false
}

// daysOf returns the matching days of the month that begins at a time as bits. They are the same
// for all months with the same first weekday and length.
func (p *plan) daysOf(begin time.Time) uint32 {
	length := begin.AddDate(0, 1, -1).Day()
	known := &p.days[begin.Weekday()][length-28]
	if *known != 0 {
		return *known &^ 1
	}
	*known = 1 // marks the entry as known even if no day matches
	g := gronx.New()
	for day := 1; day <= length; day++ {
		g.C.SetRef(begin.AddDate(0, 0, day-1))
		// The segments were checked before, so an error means no match.
		if due, err := g.SegmentsDue(p.date); err == nil && due {
			*known |= 1 << day
		}
	}
	return *known &^ 1
}

// minuteOf returns the first matching minute of a day at or after an hour and minute.
func (p *plan) minuteOf(hour, minute int) (int, bool) {
	for h := hour; h < 24; h++ {
		if p.hours&(1<<h) != 0 {
			for m := minute; m < 60; m++ {
				if p.minutes&(1<<m) != 0 {
					return h*60 + m, true
				}
			}
		}
		minute = 0
	}
	return 0, false
}
