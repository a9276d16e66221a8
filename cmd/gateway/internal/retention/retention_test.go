package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gateway/store"
)

func openDB(t *testing.T, migrations ...store.Migration) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "g.db"), migrations, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// A rowTable is a table from which a rule removes rows.
type rowTable struct {
	left   int
	before []time.Time // the limit of each call
	fail   error
}

func (s *rowTable) prune(_ *store.Tx, before time.Time, after int64) (int, int64, error) {
	s.before = append(s.before, before)
	if s.fail != nil {
		return 0, 0, s.fail
	}
	n := min(s.left, 3)
	if s.left -= n; s.left > 0 {
		return n, after + 3, nil
	}
	return n, 0, nil
}

// A pass applies each rule to its end, even if other rules fail, with the time to keep of that
// rule. A rule without such a time removes nothing. The log has one line about the removed rows.
func TestPass(t *testing.T) {
	db := openDB(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	broken := errors.New("broken")
	first, bad := &rowTable{left: 8}, &rowTable{fail: broken}
	kept, last := &rowTable{left: 5}, &rowTable{left: 2}
	s := New(db, []Rule{
		{Name: "first", Keep: time.Hour, Prune: first.prune},
		{Name: "bad", Keep: time.Hour, Prune: bad.prune},
		{Name: "kept", Prune: kept.prune},
		{Name: "last", Keep: 48 * time.Hour, Prune: last.prune},
	}, &Options{Now: func() time.Time { return now }, Pause: time.Nanosecond, MaxBytes: 1,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	err := s.Pass(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("Pass = %v, want %v of bad", err, broken)
	}
	if first.left != 0 || kept.left != 5 || last.left != 0 {
		t.Errorf("left are %d, %d and %d, want 0, 5 and 0", first.left, kept.left, last.left)
	}
	if len(first.before) != 3 || !last.before[0].Equal(now.Add(-48*time.Hour)) {
		t.Errorf("%d calls, the last rule's before %v", len(first.before), last.before)
	}
	for _, want := range []string{"rows.first=8 rows.last=2", "max_total_mb"} {
		if got := strings.Count(log.String(), want); got != 1 {
			t.Errorf("the log has %q %d times, want once:\n%s", want, got, &log)
		}
	}
	if err := s.Pass(t.Context()); !errors.Is(err, broken) {
		t.Errorf("second Pass = %v", err)
	}
	if got := strings.Count(log.String(), "old rows removed"); got != 1 {
		t.Errorf("%d passes have said that they removed something, want 1", got)
	}
}

// goods are tables with 2,000 rows each. All but the newest 100 may be removed.
var goods = store.Migration{Package: "goods", Steps: []string{
	"CREATE TABLE a (id IDENTITY PRIMARY KEY, at_ms BIGINT, text TEXT);" +
		"CREATE TABLE b (id IDENTITY PRIMARY KEY, at_ms BIGINT, text TEXT);" +
		"CREATE TABLE c (id IDENTITY PRIMARY KEY, at_ms BIGINT, text TEXT);"}}

// fillGoods fills the tables with rows of a kilobyte and returns the rules for them.
func fillGoods(t *testing.T, db *store.DB) (a, b, c Rule) {
	t.Helper()
	err := db.Tx(t.Context(), func(tx *store.Tx) error {
		for i := range 2000 {
			for _, table := range []string{"a", "b", "c"} {
				_, err := tx.Exec("INSERT INTO "+table+" (at_ms, text) VALUES ($1, $2)",
					i, strings.Repeat("x", 1000))
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rule := func(table string) Rule {
		return Rule{Name: table, Keep: time.Hour,
			Prune: store.Pruning{Table: table, Time: "at_ms", Over: "id <= 1900"}.Step}
	}
	return rule("a"), rule("b"), rule("c")
}

// left returns the number of rows of each table.
func left(t *testing.T, db *store.DB, tables ...string) (list []int) {
	t.Helper()
	for _, table := range tables {
		var n int
		err := db.Read(t.Context()).QueryRow("SELECT count(*) FROM " + table).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// If the database is too large, a pass removes no more rows than it must. The rules of a group
// take turns. The next group loses rows only when the group before it has none left to remove.
func TestTight(t *testing.T) {
	db := openDB(t, goods)
	a, b, c := fillGoods(t, db)
	used, err := db.Used(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	row := used / 6000
	var log bytes.Buffer
	o := Options{Pause: time.Nanosecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Tight: [][]Rule{{a, b}, {c}}, Remains: map[string]string{"b": "what b is about"}}
	pass := func(most int64, want ...int) {
		t.Helper()
		o.MaxBytes = most
		if err := New(db, nil, &o).Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := left(t, db, "a", "b", "c"); !slices.Equal(got, want) {
			t.Errorf("with room for %d of %d bytes %d rows are left, want %d",
				most, used, got, want)
		}
	}
	pass(used, 2000, 2000, 2000)
	pass(used-400*row, 1500, 2000, 2000)
	pass(used-1400*row, 1000, 1500, 2000)
	pass(0, 1000, 1500, 2000) // 0 means no limit
	if strings.Contains(log.String(), "level=WARN") {
		t.Errorf("it warns though there is room:\n%s", &log)
	}
	pass(used-4200*row, 100, 100, 1500)
	pass(1, 100, 100, 100)
	for _, want := range []string{"rows.a=500 rows.b=500", "rows.a=900 rows.b=1400 rows.c=500",
		"max_total_mb", "b 0.1 MB: what b is about"} {
		if got := strings.Count(log.String(), want); got != 1 {
			t.Errorf("the log has %q %d times, want once:\n%s", want, got, &log)
		}
	}
}

// A rule that fails does not keep other rules from making room.
func TestTightFails(t *testing.T) {
	db := openDB(t, goods)
	a, _, c := fillGoods(t, db)
	broken := errors.New("broken")
	bad := &rowTable{fail: broken}
	tight := [][]Rule{{{Name: "bad", Keep: time.Hour, Prune: bad.prune}, a}, {c}}
	err := New(db, nil, &Options{Pause: time.Nanosecond, MaxBytes: 1, Tight: tight}).Pass(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("Pass = %v, want %v of bad", err, broken)
	}
	if got := left(t, db, "a", "b", "c"); !slices.Equal(got, []int{100, 2000, 100}) {
		t.Errorf("%d rows are left, want all that could go to be gone", got)
	}
	if len(bad.before) != 1 {
		t.Errorf("the rule was called %d times, want once", len(bad.before))
	}
}

// Repeat calls the function until there is nothing left to remove.
func TestRepeat(t *testing.T) {
	left := 7
	prune := Repeat(func(*store.Tx, time.Time) (int, error) {
		n := min(left, 3)
		left -= n
		return n, nil
	})
	var counts []int
	for after := int64(0); ; {
		n, next, err := prune(nil, time.Time{}, after)
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, n)
		if after = next; next == 0 {
			break
		}
	}
	if got := fmt.Sprint(counts); got != "[3 3 1 0]" {
		t.Errorf("removed %s, want [3 3 1 0]", got)
	}
}

// Run makes the first pass after a minute and a further one every hour, even after a pass that
// failed.
func TestRun(t *testing.T) {
	db := openDB(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		s := New(db, []Rule{{Name: "bad", Keep: time.Hour,
			Prune: func(*store.Tx, time.Time, int64) (int, int64, error) {
				calls.Add(1)
				return 0, 0, errors.New("broken")
			}}}, nil)
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for _, at := range []struct {
			wait  time.Duration
			calls int64
		}{{59 * time.Second, 0}, {2 * time.Second, 1}, {time.Hour, 2}, {time.Hour, 3}} {
			time.Sleep(at.wait)
			synctest.Wait()
			if got := calls.Load(); got != at.calls {
				t.Errorf("%d calls, want %d", got, at.calls)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// After the clock has jumped, in either direction, nothing is removed for a day.
func TestClockJumps(t *testing.T) {
	db := openDB(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls, jump atomic.Int64
		s := New(db, []Rule{{Name: "counted", Keep: time.Hour,
			Prune: func(*store.Tx, time.Time, int64) (int, int64, error) {
				calls.Add(1)
				return 0, 0, nil
			}}}, &Options{Now: func() time.Time {
			return time.Now().Add(time.Duration(jump.Load()))
		}})
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for _, at := range []struct{ jump, wait time.Duration }{
			{0, 90 * time.Minute}, {30 * 24 * time.Hour, 24 * time.Hour}, {0, 24 * time.Hour},
		} {
			before := calls.Load()
			jump.Store(int64(at.jump))
			time.Sleep(at.wait)
			synctest.Wait()
			if got := calls.Load() - before; (got > 0) != (at.jump == 0 && before == 0) {
				t.Errorf("%d passes within %s after a jump to %s", got, at.wait, at.jump)
			}
		}
		before := calls.Load()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if calls.Load() == before {
			t.Error("no pass more than a day after the last jump")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// If the clock is far from the newest row at the start, nothing is removed for a day.
func TestClockWrongAtStart(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		name  string
		rows  []time.Duration // relative to now, the newest row first
		trust bool
	}{
		{"no row", nil, true}, {"after a week", []time.Duration{-7 * day}, true},
		{"a little before", []time.Duration{10 * time.Minute, -day}, true},
		{"hours before", []time.Duration{5 * time.Hour, -day}, false},
		{"months after", []time.Duration{-60 * day}, false},
		{"months after, for the second time", []time.Duration{-time.Hour, -60 * day}, false},
		{"in the first hours", []time.Duration{-time.Hour, -2 * time.Hour}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := openDB(t)
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var calls atomic.Int64
				s := New(db, []Rule{{Name: "counted", Keep: time.Hour,
					Prune: func(*store.Tx, time.Time, int64) (int, int64, error) {
						calls.Add(1)
						return 0, 0, nil
					}}}, &Options{Newest: func(_ store.Queryer, before time.Time) (time.Time, error) {
					for _, row := range test.rows {
						if at := time.Now().Add(row); at.Before(before) {
							return at, nil
						}
					}
					return time.Time{}, nil
				}})
				ended := make(chan error)
				go func() { ended <- s.Run(ctx) }()
				time.Sleep(23 * time.Hour)
				synctest.Wait()
				if n := calls.Load(); (n > 0) != test.trust {
					t.Errorf("%d passes within a day", n)
				}
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				if calls.Load() == 0 {
					t.Error("no pass after a day")
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("Run = %v", err)
				}
			})
		})
	}
}
