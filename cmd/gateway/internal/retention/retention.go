// Package retention removes old data that is no longer used. From a database that is too large it
// removes the oldest such data first. It works in small pieces, so that nobody waits for it.
//
// The main type is [Sweeper]. Each kind of data has a [Rule], which its package owns. A piece is
// one transaction of at most [Batch] rows. After each piece the sweeper pauses, to leave the
// database to others. Data that is still used stays, even if the database is too large: then the
// sweeper reports what takes up the room.
//
// The package owns no tables.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"gateway/store"
)

// A Rule removes what one owner has of one kind.
type Rule struct {
	Name string        // for the log, a plural: "messages in"
	Keep time.Duration // how long after its end something is kept; 0: for ever

	// Prune removes some of what ended before a time: of the rows that come next after an id,
	// as many as a short transaction may have. It returns how many, and the id after which it is
	// to be called again, 0 at the end. It may run more than once for one transaction.
	Prune func(tx *store.Tx, before time.Time, after int64) (n int, next int64, err error)
}

// Repeat makes a Prune of a function that is to be called until it removes nothing.
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
	Logger *slog.Logger     // discards by default
	Now    func() time.Time // the clock; time.Now by default
	First  time.Duration    // from the start to the first pass; default a minute
	Every  time.Duration    // from the end of a pass to the next; default an hour
	Rest   time.Duration    // between two pieces; default 20 ms

	// Newest returns the time of the newest row that an earlier process has written, or the zero
	// time. With it a clock that is wrong at the start is noticed.
	Newest func(q store.Queryer) (time.Time, error)

	// Most is how many bytes the database may use; 0: any number. If it uses more after a pass, the
	// rules of Tight apply, with what they keep also then: those of a group take turns, the oldest
	// rows of each first, until there is room or none of them finds anything more. Then comes the
	// next group.
	Most  int64
	Tight [][]Rule
	// Remains says, by table, which rows may stay and how somebody can reduce them.
	Remains map[string]string
}

// A Sweeper applies rules, again and again.
type Sweeper struct {
	db    *store.DB
	rules []Rule
	o     Options
}

// New returns a Sweeper of the rules.
func New(db *store.DB, rules []Rule, o *Options) *Sweeper {
	s := &Sweeper{db: db, rules: rules}
	if o != nil {
		s.o = *o
	}
	s.o.Logger = cmp.Or(s.o.Logger, slog.New(slog.DiscardHandler))
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	s.o.First = cmp.Or(s.o.First, time.Minute)
	s.o.Every = cmp.Or(s.o.Every, time.Hour)
	s.o.Rest = cmp.Or(s.o.Rest, 20*time.Millisecond)
	return s
}

// A clock that jumps makes everything old at once. After a jump by more than maxJump, against the
// time for which the process has run, nothing is removed for trustTime: a person, or the network's
// time, can set it right meanwhile. A machine that slept looks the same, and loses nothing by it.
// So is a clock treated that stands before the newest row at the start, or maxGap after it.
const (
	maxJump   = time.Hour
	maxGap    = 30 * 24 * time.Hour
	trustTime = 24 * time.Hour
)

// Run makes a pass soon and then every hour until ctx ends. A failure is logged, and tried again
// with the next pass.
func (s *Sweeper) Run(ctx context.Context) error {
	began, clock := time.Now(), s.o.Now()
	jumped := s.doubt(ctx, began)
	for wait := s.o.First; sleep(ctx, wait); wait = s.o.Every {
		jump := s.o.Now().Round(0).Sub(clock.Round(0)) - time.Since(began)
		if jump.Abs() > maxJump {
			s.o.Logger.ErrorContext(ctx, "the clock has jumped: nothing old is removed for a day; "+
				"look whether it is right", "by", jump.Round(time.Second))
			began, clock, jumped = time.Now(), s.o.Now(), time.Now()
		}
		if !jumped.IsZero() && time.Since(jumped) < trustTime {
			continue
		}
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "not all that is old was removed", "err", err)
		}
	}
	return nil
}

// doubt returns began if the clock may be wrong already, else the zero time.
func (s *Sweeper) doubt(ctx context.Context, began time.Time) time.Time {
	if s.o.Newest == nil {
		return time.Time{}
	}
	newest, err := s.o.Newest(s.db.Read(ctx))
	if err != nil {
		s.o.Logger.WarnContext(ctx, "nothing old is removed for a day", "err", err)
		return began
	}
	gap := s.o.Now().Sub(newest)
	if newest.IsZero() || gap > -maxJump && gap < maxGap {
		return time.Time{}
	}
	s.o.Logger.WarnContext(ctx, "the clock is far from the newest message: nothing old is removed "+
		"for a day; look whether it is right", "by", gap.Round(time.Second))
	return began
}

// Pass applies each rule until nothing is left for it, makes the database small enough, and then
// gives the room back.
func (s *Sweeper) Pass(ctx context.Context) error {
	start := s.o.Now()
	var errs []error
	var removed []any
	for _, r := range s.rules {
		n, err := s.apply(ctx, r, start)
		if err != nil {
			errs = append(errs, fmt.Errorf("retention: %s: %w", r.Name, err))
		}
		if n > 0 {
			removed = append(removed, slog.Int(r.Name, n))
		}
	}
	s.report(ctx, "old rows removed", removed, start)
	errs = append(errs, s.tighten(ctx, start), s.shrink(ctx), s.warn(ctx))
	return errors.Join(errs...)
}

// report says which rows were removed, if there were any.
func (s *Sweeper) report(ctx context.Context, message string, removed []any, start time.Time) {
	if len(removed) > 0 {
		s.o.Logger.InfoContext(ctx, message, slog.Group("rows", removed...),
			"took", s.o.Now().Sub(start))
	}
}

func (s *Sweeper) apply(ctx context.Context, r Rule, now time.Time) (total int, err error) {
	if r.Keep == 0 {
		return 0, nil
	}
	for after := int64(0); ; {
		n, next, err := s.piece(ctx, r, now, after)
		if err != nil {
			return total, err
		}
		total += n
		if after = next; next == 0 {
			return total, nil
		}
		if !sleep(ctx, s.o.Rest) {
			return total, ctx.Err()
		}
	}
}

// piece applies a rule to the next rows after an id.
func (s *Sweeper) piece(
	ctx context.Context, r Rule, now time.Time, after int64,
) (n int, next int64, err error) {
	err = s.db.Tx(ctx, func(tx *store.Tx) (err error) {
		n, next, err = r.Prune(tx, now.Add(-r.Keep), after)
		return err
	})
	return n, next, err
}

// excess reports whether the database is too large.
func (s *Sweeper) excess(ctx context.Context) (used int64, over bool, err error) {
	if s.o.Most == 0 {
		return 0, false, nil
	}
	used, err = s.db.Used(ctx)
	return used, used > s.o.Most, err
}

// tighten removes what is over from a database that is too large.
func (s *Sweeper) tighten(ctx context.Context, now time.Time) error {
	removed := make(map[string]int)
	var names []string
	var errs []error
	for _, group := range s.o.Tight {
		for _, r := range group {
			if !slices.Contains(names, r.Name) {
				names = append(names, r.Name)
			}
		}
		errs = append(errs, s.takeTurns(ctx, group, now, removed))
	}
	var counts []any
	for _, name := range names {
		if removed[name] > 0 {
			counts = append(counts, slog.Int(name, removed[name]))
		}
	}
	s.report(ctx, "rows removed because the database was too large", counts, now)
	return errors.Join(errs...)
}

// takeTurns lets the rules of a group remove a piece each, again and again, until there is room or
// nothing left to remove. It counts by their names what they have removed.
func (s *Sweeper) takeTurns(
	ctx context.Context, group []Rule, now time.Time, removed map[string]int,
) error {
	var errs []error
	after := make(map[int]int64) // of the rules that are not at their end
	for i := range group {
		after[i] = 0
	}
	for len(after) > 0 {
		for i, r := range group {
			from, ok := after[i]
			if !ok {
				continue
			}
			if _, over, err := s.excess(ctx); err != nil || !over {
				return errors.Join(append(errs, err)...)
			}
			n, next, err := s.piece(ctx, r, now, from)
			if err != nil {
				errs = append(errs, fmt.Errorf("retention: %s: %w", r.Name, err))
			}
			removed[r.Name] += n
			if after[i] = next; next == 0 || err != nil {
				delete(after, i)
			}
			if !sleep(ctx, s.o.Rest) {
				return errors.Join(append(errs, ctx.Err())...)
			}
		}
	}
	return errors.Join(errs...)
}

// shrink gives free pages back to the file system, some at a time.
func (s *Sweeper) shrink(ctx context.Context) error {
	for {
		more, err := s.db.Shrink(ctx)
		if err != nil || !more {
			return err
		}
		if !sleep(ctx, s.o.Rest) {
			return ctx.Err()
		}
	}
}

// lookTime is how long may be looked for what is in the way.
const lookTime = 30 * time.Second

// warn says what is in the way if the database is still too large.
func (s *Sweeper) warn(ctx context.Context) error {
	used, over, err := s.excess(ctx)
	if err != nil || !over {
		return err
	}
	look, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	list, err := s.db.Largest(look)
	if err != nil { // it may be too large to be read in that time
		s.o.Logger.DebugContext(ctx, "largest tables not known", "err", err)
	}
	var way []string
	for _, t := range list {
		line := fmt.Sprintf("%s %.1f MB", t.Table, float64(t.Bytes)/mb)
		if what := s.o.Remains[t.Table]; what != "" {
			line += ": " + what
		}
		way = append(way, line)
	}
	s.o.Logger.WarnContext(ctx, "the database is larger than [retention] max_total_mb, and "+
		"nothing more can go: make what is in the way less, or raise the bound",
		"mb", used/mb, "most_mb", s.o.Most/mb, "in_the_way", way)
	return nil
}

const mb = 1 << 20

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
