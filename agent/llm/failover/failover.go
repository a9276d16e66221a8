// Package failover makes one [llm.Model] of several: a [Chain] retries after errors that may pass,
// goes on to the next model after others, and avoids a model that failed for a while.
//
// A call tries each model at most 4 times, with 7 seconds of waiting of its own.
// The state is in memory: after a restart every model is tried afresh. The
// package owns no tables.
package failover

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"gateway/agent/llm"
)

// How a call is retried on the same model.
const (
	retries   = 3
	firstWait = time.Second // doubles each time
	jitter    = 0.25        // at most so much longer, as a part of the wait
	maxAfter  = time.Minute // a provider that asks for more is left alone
)

// An Entry is a model with the name under which it is configured.
type Entry struct {
	Name  string
	Model llm.Model
}

// Options are the optional settings of a [Chain].
type Options struct {
	Logger *slog.Logger     // default discards
	Now    func() time.Time // for cool-downs; default time.Now
}

// A Chain is a list of models, the preferred one first. It implements [llm.Model]:
//
// Kinds of errors for which [llm.Kind.Passing] holds are retried on the same model, any
// other goes to the next model at once, but for [llm.ContextTooLong] and [llm.NoImages]:
// these are returned to the caller, who alone can change the conversation. The error
// returned is that of the last model.
type Chain struct {
	links []*link
	log   *slog.Logger
	now   func() time.Time
}

var _ llm.Model = (*Chain)(nil)

// New returns a chain of at least one model; it panics if there is none.
func New(entries []Entry, opts *Options) *Chain {
	if len(entries) == 0 {
		panic("failover: no models")
	}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	c := &Chain{log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), now: o.Now}
	if c.now == nil {
		c.now = time.Now
	}
	for _, e := range entries {
		c.links = append(c.links, &link{Entry: e})
	}
	return c
}

// Efforts returns the efforts that can be asked of the preferred model.
func (c *Chain) Efforts() []llm.Effort { return llm.Efforts(c.links[0].Model) }

// Stream implements [llm.Model].
func (c *Chain) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		t := &try{yield: yield}
		var err error
		for _, l := range c.order() {
			err = c.ask(ctx, l, req, t)
			if err == nil || t.broken || ctx.Err() != nil || forCaller(kindOf(err)) {
				break
			}
		}
		if err != nil && !t.broken {
			yield(llm.Event{}, err)
		}
	}
}

// forCaller reports whether the caller has to change the conversation.
func forCaller(kind llm.Kind) bool {
	return kind == llm.ContextTooLong || kind == llm.NoImages
}

// order returns the models to try: those that are not cooling down, or, while
// all are, the one that is due first.
func (c *Chain) order() []*link {
	now := c.now()
	var ready []*link
	soonest, least := c.links[0], time.Duration(0)
	for i, l := range c.links {
		left := l.cooling(now)
		if left == 0 {
			ready = append(ready, l)
		}
		if i == 0 || left < least {
			soonest, least = l, left
		}
	}
	if len(ready) == 0 {
		return []*link{soonest}
	}
	return ready
}

// ask tries one model until it answers, fails for good or has had its
// retries. In the latter cases the model cools down.
func (c *Chain) ask(ctx context.Context, l *link, req llm.Request, t *try) error {
	for n := 0; ; n++ {
		err := t.run(ctx, l.Model, req)
		switch {
		case t.broken:
			return nil
		case err == nil:
			l.reset()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		kind, after := kindOf(err), afterOf(err)
		wait, again := retryIn(kind, after, n)
		if !again {
			if d := l.failed(kind, after, c.now()); d > 0 {
				c.log.WarnContext(ctx, "model cools down",
					"model", l.Name, "kind", kind, "after", d.Round(time.Second))
			} else {
				c.log.WarnContext(ctx, "model failed", "model", l.Name, "kind", kind)
			}
			return err
		}
		c.log.InfoContext(ctx, "model is retried", "model", l.Name, "kind", kind, "after", wait)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// retryIn returns how long to wait before the same model is tried again after
// n retries, and whether it is to be tried again.
func retryIn(kind llm.Kind, after time.Duration, n int) (time.Duration, bool) {
	if !kind.Passing() || n >= retries || after > maxAfter {
		return 0, false
	}
	wait := cmp.Or(after, firstWait<<n)
	// So that the calls that failed together do not come back together.
	return wait + time.Duration(rand.Float64()*jitter*float64(wait)), true
}

// sleep waits for d, or until ctx ends, and then returns its error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errNoEnd is the error of a model that breaks its contract.
var errNoEnd = errors.New("failover: stream ended without a response")

// A try is one call of the Chain, over all of its attempts.
type try struct {
	yield  func(llm.Event, error) bool
	shown  bool // text of an attempt that failed stands before the user
	broken bool // the consumer has broken out of the loop
}

// run makes one attempt and passes its events on. It returns the
// error with which the attempt ended.
func (t *try) run(ctx context.Context, m llm.Model, req llm.Request) error {
	if t.shown && !t.pass(llm.Event{Reset: true}) {
		return nil
	}
	for e, err := range m.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if !t.pass(e) || e.Response != nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errNoEnd
}

func (t *try) pass(e llm.Event) bool {
	if e.Reset {
		t.shown = false
	}
	t.shown = t.shown || e.Text != ""
	more := t.yield(e, nil)
	t.broken = !more && e.Response == nil // after the Response nothing is left to break
	return more
}

// kindOf returns the kind of err; errors of no kind count as passing.
func kindOf(err error) llm.Kind {
	var e *llm.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return llm.Unavailable
}

// afterOf returns how long the provider asks to wait.
func afterOf(err error) time.Duration {
	var e *llm.Error
	if errors.As(err, &e) {
		return e.After
	}
	return 0
}
