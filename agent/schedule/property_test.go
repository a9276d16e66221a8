package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gateway/store"
)

// changes lists time zones, each with a day near which its clock changes.
var changes = []struct {
	zone string
	day  time.Time
}{
	{"Europe/Berlin", time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)},
	{"Europe/Berlin", time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC)},
	{"America/New_York", time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)},
	{"America/New_York", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2026, 4, 5, 0, 0, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC)},
	{"Pacific/Apia", time.Date(2011, 12, 30, 0, 0, 0, 0, time.UTC)},
	{"America/Sao_Paulo", time.Date(2018, 11, 4, 0, 0, 0, 0, time.UTC)},
	{"Asia/Beirut", time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)},
	{"Asia/Kathmandu", time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)},
	{"UTC", time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC)},
}

// clockField draws one field of an expression. It returns the field and the numbers that the
// field matches.
func clockField(r *rapid.T, name string, least, most int) (string, []int) {
	from := rapid.IntRange(least, most).Draw(r, name)
	switch rapid.IntRange(0, 3).Draw(r, name+" form") {
	case 0:
		var all []int
		for n := least; n <= most; n++ {
			all = append(all, n)
		}
		return "*", all
	case 1:
		to := rapid.IntRange(from, most).Draw(r, name+" to")
		step := rapid.IntRange(1, max(1, (most-least)/2)).Draw(r, name+" step")
		var list []int
		for n := from; n <= to; n += step {
			list = append(list, n)
		}
		return fmt.Sprintf("%d-%d/%d", from, to, step), list
	case 2:
		other := rapid.IntRange(least, most).Draw(r, name+" other")
		return fmt.Sprintf("%d,%d", from, other), []int{from, other}
	}
	return fmt.Sprint(from), []int{from}
}

// oracle finds the times of an expression by checking the wall clock each minute. A wall time
// counts when it is shown for the first time. A skipped wall time counts in the minute of the
// skip.
func oracle(begin, end time.Time, loc *time.Location, due func(wall time.Time) bool) []time.Time {
	var list []time.Time
	// A run-up of two days finds wall times that were already shown before begin.
	newest := floating(begin.AddDate(0, 0, -2).In(loc)).Add(-time.Minute)
	for t := begin.AddDate(0, 0, -2); t.Before(end); t = t.Add(time.Minute) {
		wall := floating(t.In(loc))
		hit := false
		for ; newest.Before(wall); newest = newest.Add(time.Minute) {
			hit = hit || due(newest.Add(time.Minute))
		}
		if hit && t.After(begin) {
			list = append(list, t)
		}
	}
	return list
}

// TestCronOracle checks that random expressions have the times that oracle finds, around changes
// of the clock.
func TestCronOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		change := rapid.SampledFrom(changes).Draw(r, "change")
		loc := zone(t, change.zone)
		minute, minutes := clockField(r, "minute", 0, 59)
		hour, hours := clockField(r, "hour", 0, 23)
		expr := minute + " " + hour + " * * *"
		due := func(wall time.Time) bool {
			return slices.Contains(minutes, wall.Minute()) && slices.Contains(hours, wall.Hour())
		}
		if rapid.Bool().Draw(r, "on a weekday") {
			day := rapid.IntRange(0, 7).Draw(r, "weekday")
			expr = fmt.Sprintf("%s %s * * %d", minute, hour, day)
			clock := due
			due = func(wall time.Time) bool {
				return clock(wall) && int(wall.Weekday()) == day%7
			}
		}
		w, err := ParseCron(expr, loc)
		if err != nil {
			r.Fatal(err)
		}
		begin := change.day.Add(-time.Duration(rapid.IntRange(0, 3*24*60).Draw(r, "before")) *
			time.Minute)
		end := change.day.AddDate(0, 0, 5)
		want := oracle(begin, end, loc, due)
		next := w.series()
		last := begin
		for i, at := range append(want, end) {
			got, ok := next(last)
			if !ok || !got.After(last) {
				r.Fatalf("%s in %s: after %v comes %v, %v", expr, loc, last, got, ok)
			}
			if i == len(want) && !got.Before(end) {
				break
			}
			if !got.Equal(at) {
				r.Fatalf("%s in %s: after %v comes %v, want %v", expr, loc, last, got, at.In(loc))
			}
			last = got
		}
	})
}

// TestClockJumps moves the clock back and forth and restarts the gateway while jobs are due. It
// checks that no time of a job runs twice, that a job runs only at its times, and that a job
// never misses a time that the clock passes.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rapid.Check(t, func(r *rapid.T) {
		w.tx(func(tx *store.Tx) error {
			for _, table := range []string{"jobs", "runs", "inbox"} {
				if _, err := tx.Exec("DELETE FROM " + table); err != nil {
					return err
				}
			}
			return nil
		})
		w.now = morning
		w.restart()
		jobs := []*Job{w.add(job("every", w.every("10m"))),
			w.add(job("cron", w.cron("*/15 * * * *"))), w.add(job("once", w.at("in 47m")))}
		ran := make(map[string]bool) // by "job due"
		w.look(0)
		for range rapid.IntRange(5, 25).Draw(r, "looks") {
			before := w.now
			switch rapid.IntRange(0, 5).Draw(r, "what") {
			case 0:
				jump := rapid.IntRange(-300, 300).Draw(r, "jump")
				w.now = w.now.Add(time.Duration(jump) * time.Minute)
			case 1:
				w.restart()
			default:
				minutes := rapid.IntRange(0, 20).Draw(r, "minutes")
				w.now = w.now.Add(time.Duration(minutes) * time.Minute)
			}
			w.look(0)
			for _, j := range jobs {
				checkRuns(r, w, j, before, ran)
			}
		}
	})
}

// checkRuns checks the runs of a job after a look, and then completes them.
func checkRuns(r *rapid.T, w *world, j *Job, before time.Time, ran map[string]bool) {
	runs, err := Runs(w.read(), j.ID)
	if err != nil {
		r.Fatal(err)
	}
	var fresh []time.Time
	for _, run := range runs {
		if run.State != Waiting {
			continue
		}
		key := fmt.Sprint(j.Name, " ", run.Due.UnixMilli())
		if ran[key] {
			r.Fatalf("%s runs twice", key)
		}
		ran[key] = true
		fresh = append(fresh, run.Due)
		if next, ok := j.When.Next(run.Due.Add(-time.Millisecond)); !ok || !next.Equal(run.Due) {
			r.Fatalf("%s runs at %v, which is none of its times", j.Name, run.Due)
		}
		if run.Due.After(w.now) {
			r.Fatalf("%s runs at %v, before its time %v", j.Name, w.now, run.Due)
		}
		w.do(j)
	}
	if len(fresh) > 1 {
		r.Fatalf("%s runs at once for %v", j.Name, fresh)
	}
	// The newest time since the last look has run, perhaps before a jump back.
	due, ok := j.When.Next(before)
	if !ok || due.After(w.now) {
		return
	}
	due = j.When.series().newest(due, w.now)
	if !ran[fmt.Sprint(j.Name, " ", due.UnixMilli())] {
		r.Fatalf("%s did not run at %v, between %v and %v\n%s", j.Name, due, before, w.now,
			strings.Join(w.texts(), "\n"))
	}
}
