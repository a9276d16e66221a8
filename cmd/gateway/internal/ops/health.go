package ops

import (
	"context"
	"sync"
	"time"
)

// A Check is one condition for the gateway to be ready.
type Check struct {
	Name string

	// Test returns the state in a few words, and whether that is well. It is called by one
	// goroutine at a time and never blocks: slow tests run in a [Probe].
	Test func(ctx context.Context) (state string, ok bool)
}

// A Result is the result of a [Check].
type Result struct {
	Name  string    `json:"name"`
	OK    bool      `json:"ok"`
	State string    `json:"state"` // a few words
	Since time.Time `json:"since"` // when OK was seen to be as it is
}

// A Report has the results of all checks.
type Report struct {
	Ready  bool     `json:"ready"`
	Checks []Result `json:"checks"`
}

// Health knows whether the gateway is ready. Its methods may be called concurrently.
type Health struct {
	checks []Check

	mu   sync.Mutex
	last []Result
}

// NewHealth returns a Health of checks.
func NewHealth(checks ...Check) *Health {
	return &Health{checks: checks, last: make([]Result, len(checks))}
}

// Report makes all checks.
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
