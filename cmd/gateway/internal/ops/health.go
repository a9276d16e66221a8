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
