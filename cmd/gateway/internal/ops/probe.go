package ops

import (
	"context"
	"sync"
	"time"
)

// A Probe runs a test that may take long, or never end, apart from the callers that want its
// result. Only one test runs at a time.
type Probe struct {
	every, limit time.Duration
	try          func(ctx context.Context) (state string, err error)

	mu    sync.Mutex
	began time.Time // of the try under way; zero if there is none
	tried bool      // one has ended
	state string    // of the last one
	err   error     // of the last one
}

// NewProbe returns a Probe that makes a try each time so long after the one before. One that takes
// longer than limit is as bad as one that fails. The state that try returns says in a few words
// what was found.
func NewProbe(
	every, limit time.Duration, try func(ctx context.Context) (state string, err error),
) *Probe {
	return &Probe{every: every, limit: limit, try: try}
}

// Run makes tries until ctx ends, and returns after the last one has.
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

// Test is that of a [Check].
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
