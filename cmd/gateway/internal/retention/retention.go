// Package retention removes old data that is no longer used. If the database is too large, it
// also removes younger unused data, oldest first. It works in small pieces, so that others need
// not wait.
//
// The main type is [Sweeper]. Each kind of data has a [Rule]; the package that owns the data
// defines it. A piece is one transaction of at most [Batch] rows. After each piece the sweeper
// pauses, so that others can use the database. Data in use stays even if the database is too
// large. In this case the sweeper logs which tables use the space.
//
// The package owns no tables.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"gateway/store"
)

// A Rule removes one kind of data of one package.
type Rule struct {
	Name string        // for the log, in the plural: "messages in"
	Keep time.Duration // how long data is kept after its end; 0: for ever

	// Prune removes data that ended before a time. It checks the next rows after an id, at most
	// as many as fit in a short transaction. It returns the number of removed rows and the id for
	// the next call, or 0 at the end. It may be called again for the same transaction.
	Prune func(tx *store.Tx, before time.Time, after int64) (n int, next int64, err error)
}

// Repeat returns a Prune function that calls prune until it removes nothing.
func Repeat(prune func(tx *store.Tx, before time.Time) (int, error),
) func(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return func(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
		n, err := prune(tx, before)
		if n == 0 {
			return 0, 0, err
		}
		return n, after + 1, err
	}
}

// Options are the optional settings of [New].
type Options struct {
	Logger *slog.Logger     // default: discards
	Now    func() time.Time // the clock; default: time.Now
	First  time.Duration    // from the start to the first pass; default: 1 minute
	Every  time.Duration    // from the end of a pass to the next; default: 1 hour
	Pause  time.Duration    // between two pieces; default: 20 ms

	// Files removes files that killed processes have left, before each pass, even if the clock is
	// wrong; default: none.
	Files func() error

	// Newest returns the time of the newest row written before a time, or the zero time. The
	// sweeper uses it to detect a wrong clock at the start.
	Newest func(q store.Queryer, before time.Time) (time.Time, error)

	// MaxBytes is the maximum size of the database in bytes; 0: no limit. If the database is larger
	// after a pass, the sweeper applies the groups of Tight in order. The rules of a group take
	// turns and each remove their oldest rows, until the database is small enough or they find
	// nothing more. The Keep of these rules still applies.
	MaxBytes int64
	Tight    [][]Rule
	// Remains explains, by table, which rows can't be removed and how an operator can reduce
	// them.
	Remains map[string]string
}

// A Sweeper applies rules repeatedly.
type Sweeper struct {
	db    *store.DB
	rules []Rule
	opts  Options

	mu     sync.Mutex
	began  time.Time // when the clock was last compared; zero before the first time
	clock  time.Time // what the clock showed then
	jumped time.Time // when the clock was last found to be wrong; zero: never
}

// New returns a Sweeper with rules. A nil o uses the defaults.
func New(db *store.DB, rules []Rule, o *Options) *Sweeper {
	s := &Sweeper{db: db, rules: rules, opts: *cmp.Or(o, new(Options))}
	s.opts.Logger = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler))
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	s.opts.First = cmp.Or(s.opts.First, time.Minute)
	s.opts.Every = cmp.Or(s.opts.Every, time.Hour)
	s.opts.Pause = cmp.Or(s.opts.Pause, 20*time.Millisecond)
	return s
}

// If the clock jumps forward, everything seems old. So nothing is removed for trustTime after the
// clock has jumped by more than maxJump, compared with the time for which the process has run. A
// person or NTP can correct the clock meanwhile. Waking up from sleep looks the same and does no
// harm. The same applies at the start if the clock is more than maxJump before the newest row, or
// more than maxGap after the newest one that is older than trustTime. Newer rows may have the time
// of an earlier process with the same wrong clock.
const (
	maxJump   = time.Hour
	maxGap    = 30 * 24 * time.Hour
	trustTime = 24 * time.Hour
)

// Run makes passes until ctx ends. It logs failures; the next pass tries again.
func (s *Sweeper) Run(ctx context.Context) error {
	s.TrustsClock(ctx)
	for wait := s.opts.First; sleep(ctx, wait); wait = s.opts.Every {
		if s.opts.Files != nil {
			if err := s.opts.Files(); err != nil {
				s.opts.Logger.WarnContext(ctx, "not all old files were removed", "err", err)
			}
		}
		if !s.TrustsClock(ctx) {
			continue
		}
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.WarnContext(ctx, "not all old data was removed", "err", err)
		}
	}
	return nil
}

// TrustsClock reports whether data may be removed because of its age. The first call should come
// before anything is accepted in this process, because it compares the clock with the newest row.
func (s *Sweeper) TrustsClock(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, shown := time.Now(), s.opts.Now()
	if s.began.IsZero() {
		s.began, s.clock = now, shown
		s.jumped = s.suspectClock(ctx, now)
	}
	jump := shown.Round(0).Sub(s.clock.Round(0)) - now.Sub(s.began)
	if jump.Abs() > maxJump {
		s.opts.Logger.ErrorContext(ctx, "the clock has jumped: no old data is removed for a day; "+
			"check the clock", "by", jump.Round(time.Second))
		s.began, s.clock, s.jumped = now, shown, now
	}
	return s.jumped.IsZero() || now.Sub(s.jumped) >= trustTime
}

// suspectClock returns began if the clock may already be wrong, else the zero time.
func (s *Sweeper) suspectClock(ctx context.Context, began time.Time) time.Time {
	if s.opts.Newest == nil {
		return time.Time{}
	}
	now := s.opts.Now()
	gap, err := s.gap(ctx, now, time.UnixMilli(math.MaxInt64))
	if err == nil && gap >= 0 {
		gap, err = s.gap(ctx, now, now.Add(-trustTime))
	}
	if err != nil {
		s.opts.Logger.WarnContext(ctx, "no old data is removed for a day", "err", err)
		return began
	}
	if gap > -maxJump && gap < maxGap {
		return time.Time{}
	}
	s.opts.Logger.WarnContext(ctx, "the clock is far from the newest message: no old data is removed "+
		"for a day; check the clock", "by", gap.Round(time.Second))
	return began
}

// gap returns the time from the newest row before a time until now, or 0 if there is no such row.
func (s *Sweeper) gap(ctx context.Context, now, before time.Time) (time.Duration, error) {
	newest, err := s.opts.Newest(s.db.Read(ctx), before)
	if err != nil || newest.IsZero() {
		return 0, err
	}
	return now.Sub(newest), nil
}

// Pass applies each rule until it finds nothing more, makes the database small enough, and
// returns free pages to the file system.
func (s *Sweeper) Pass(ctx context.Context) error {
	start := s.opts.Now()
	var errs []error
	removed := make(map[string]int)
	for _, r := range s.rules {
		if r.Keep > 0 {
			errs = append(errs, s.prune(ctx, []Rule{r}, start, false, removed))
		}
	}
	s.report(ctx, "old rows removed", removed, start)
	removed = make(map[string]int)
	for _, group := range s.opts.Tight {
		errs = append(errs, s.prune(ctx, group, start, true, removed))
	}
	s.report(ctx, "rows removed because the database was too large", removed, start)
	return errors.Join(append(errs, s.shrink(ctx), s.warn(ctx))...)
}

// report logs how many rows were removed, by rule name, if any were.
func (s *Sweeper) report(
	ctx context.Context, message string, removed map[string]int, start time.Time,
) {
	var rows []any
	for _, name := range slices.Sorted(maps.Keys(removed)) {
		rows = append(rows, slog.Int(name, removed[name]))
	}
	if len(rows) > 0 {
		s.opts.Logger.InfoContext(ctx, message, slog.Group("rows", rows...),
			"took", s.opts.Now().Sub(start))
	}
}

// prune lets rules remove one piece each in turn, until nothing is left to remove or, with tight,
// the database is small enough. The pieces are small transactions with pauses, so that other
// writers need not wait. It adds the number of removed rows to removed, by rule name.
func (s *Sweeper) prune(
	ctx context.Context, rules []Rule, now time.Time, tight bool, removed map[string]int,
) error {
	var errs []error
	after := make(map[int]int64) // by rule that has not reached its end
	for i := range rules {
		after[i] = 0
	}
	for len(after) > 0 {
		for i, r := range rules {
			from, ok := after[i]
			if !ok {
				continue
			}
			if tight {
				if _, over, err := s.excess(ctx); err != nil || !over {
					return errors.Join(append(errs, err)...)
				}
			}
			var n int
			var next int64
			err := s.db.Tx(ctx, func(tx *store.Tx) (err error) {
				n, next, err = r.Prune(tx, now.Add(-r.Keep), from)
				return err
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("retention: %s: %w", r.Name, err))
			}
			if n > 0 {
				removed[r.Name] += n
			}
			if after[i] = next; next == 0 || err != nil {
				delete(after, i)
			}
			if !sleep(ctx, s.opts.Pause) {
				return errors.Join(append(errs, ctx.Err())...)
			}
		}
	}
	return errors.Join(errs...)
}

// excess returns the size of the database in bytes and whether it is too large.
func (s *Sweeper) excess(ctx context.Context) (used int64, over bool, err error) {
	if s.opts.MaxBytes == 0 {
		return 0, false, nil
	}
	used, err = s.db.Used(ctx)
	return used, used > s.opts.MaxBytes, err
}

// shrink returns free pages to the file system, a few at a time.
func (s *Sweeper) shrink(ctx context.Context) error {
	for {
		more, err := s.db.Shrink(ctx)
		if err != nil || !more {
			return err
		}
		if !sleep(ctx, s.opts.Pause) {
			return ctx.Err()
		}
	}
}

// lookTime limits the search for the largest tables.
const lookTime = 30 * time.Second

// warn logs which tables use the space if the database is still too large.
func (s *Sweeper) warn(ctx context.Context) error {
	used, over, err := s.excess(ctx)
	if err != nil || !over {
		return err
	}
	look, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	list, err := s.db.Largest(look)
	if err != nil { // a large database can exceed the time limit
		s.opts.Logger.DebugContext(ctx, "largest tables not known", "err", err)
	}
	var tables []string
	for _, t := range list {
		line := fmt.Sprintf("%s %.1f MB", t.Table, float64(t.Bytes)/mb)
		if what := s.opts.Remains[t.Table]; what != "" {
			line += ": " + what
		}
		tables = append(tables, line)
	}
	s.opts.Logger.WarnContext(ctx, "the database is larger than [retention] max_total_mb, and "+
		"nothing more can be removed: reduce the named tables, or raise the limit",
		"mb", used/mb, "most_mb", s.opts.MaxBytes/mb, "tables", tables)
	return nil
}

const mb = 1 << 20

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
