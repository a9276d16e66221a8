package ops

import (
	"context"
	"sync"
	"time"
)

// A Probe runs a slow test in its own goroutine, so that callers get the last result without
// waiting. The test may hang. Only one test runs at a time.
type Probe struct {
	every, limit time.Duration
	try          func(ctx context.Context) (state string, err error)

	mu    sync.Mutex
	began time.Time // start of the running test; zero if none runs
	tried bool      // at least one test has ended
	state string    // result of the last test
	err   error     // error of the last test
}

// NewProbe returns a Probe that calls try at most once per interval, of length every. A test that
// runs longer than limit counts as failed. try returns its result in a few words.
func NewProbe(
	every, limit time.Duration, try func(ctx context.Context) (state string, err error),
) *Probe {
	return &Probe{every: every, limit: limit, try: try}
}

// Run runs tests until ctx ends. It returns after the last test has ended.
func (p *Probe) Run(ctx context.Context) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		p.mu.Lock()
		p.began = time.Now()
		p.mu.Unlock()
		state, err := p.try(ctx)
		p.mu.Lock()
		p.began, p.tried, p.state, p.err = time.Time{}, true, state, err
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Test returns the last result. It serves as [Check.Test].
func (p *Probe) Test(context.Context) (state string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() && !p.tried {
		return "not tried yet", false
	}
	if !p.began.IsZero() {
		if took := time.Since(p.began); took > p.limit {
			return "no answer for " + took.Truncate(time.Second).String(), false
		}
		if !p.tried {
			return "being tried", false
		}
	}
	if p.err != nil {
		return p.err.Error(), false
	}
	return p.state, true
}
