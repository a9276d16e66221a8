package ops

import (
	"context"
	"sync"
	"time"
)

// A Check is one condition for the readiness of the gateway.
type Check struct {
	Name string

	// Test returns the state in a few words and whether it is good. It is called by one goroutine
	// at a time and must not block: slow tests run in a [Probe].
	Test func(ctx context.Context) (state string, ok bool)
}

// A Result is the result of a [Check].
type Result struct {
	Name  string    `json:"name"`
	OK    bool      `json:"ok"`
	State string    `json:"state"` // a few words
	Since time.Time `json:"since"` // when OK changed last
}

// A Report contains the results of all checks.
type Report struct {
	Ready  bool     `json:"ready"`
	Checks []Result `json:"checks"`
}

// Health checks whether the gateway is ready. Its methods are safe for concurrent use.
type Health struct {
	checks []Check

	mu   sync.Mutex
	last []Result
}

// NewHealth returns a Health with checks.
func NewHealth(checks ...Check) *Health {
	return &Health{checks: checks, last: make([]Result, len(checks))}
}

// Report runs all checks. The gateway is ready if all of them are OK.
func (h *Health) Report(ctx context.Context) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	report := Report{Ready: true, Checks: make([]Result, len(h.checks))}
	for i, c := range h.checks {
		state, ok := c.Test(ctx)
		if h.last[i].Since.IsZero() || h.last[i].OK != ok {
			h.last[i].Since = now
		}
		h.last[i] = Result{Name: c.Name, OK: ok, State: state, Since: h.last[i].Since}
		report.Checks[i] = h.last[i]
		report.Ready = report.Ready && ok
	}
	return report
}

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
