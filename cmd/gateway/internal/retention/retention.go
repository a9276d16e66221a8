// Package retention removes what is over and older than it is to be kept, piece by piece, so that
// nobody who works beside it waits.
//
// The main type is [Sweeper]. What is removed and how belongs to the packages that own it: each is
// a [Rule]. A piece is one transaction of at most [Batch] rows, and after each the sweeper rests
// for as long as others are likely to need the database.
//
// The package owns no tables.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// Most is the size of the database, in bytes, from which a warning is logged; 0: none.
	Most int64
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

// Run makes a pass soon and then every hour until ctx ends. What fails is logged, and tried again
// with the next pass.
func (s *Sweeper) Run(ctx context.Context) error {
	for wait := s.o.First; sleep(ctx, wait); wait = s.o.Every {
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "not all that is old was removed", "err", err)
		}
	}
	return nil
}

// Pass applies each rule until nothing is left for it, and then gives the room back.
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
	errs = append(errs, s.shrink(ctx))
	if len(removed) > 0 {
		s.o.Logger.InfoContext(ctx, "old rows removed", slog.Group("rows", removed...),
			"took", s.o.Now().Sub(start))
	}
	s.warn(ctx)
	return errors.Join(errs...)
}

func (s *Sweeper) apply(ctx context.Context, r Rule, now time.Time) (total int, err error) {
	if r.Keep == 0 {
		return 0, nil
	}
	for after := int64(0); ; {
		var n int
		var next int64
		err := s.db.Tx(ctx, func(tx *store.Tx) (err error) {
			n, next, err = r.Prune(tx, now.Add(-r.Keep), after)
			return err
		})
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

func (s *Sweeper) warn(ctx context.Context) {
	size, err := s.db.Size()
	if err == nil && s.o.Most > 0 && size > s.o.Most {
		s.o.Logger.WarnContext(ctx, "the database is larger than [retention] max_total_mb",
			"bytes", size, "most", s.o.Most)
	}
}

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
