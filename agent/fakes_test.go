package agent

import (
	"context"
	"iter"
	"testing"

	"gateway/agent/llm"
)

// checked is a model that holds what it is asked to the rules of the strictest provider.
type checked struct {
	llm.Model
	t testing.TB
}

func (m checked) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	if problem := sentProblem(r.Messages); problem != "" {
		m.t.Errorf("%s in %q", problem, lines(r.Messages[1:]))
	}
	return m.Model.Stream(ctx, r)
}

// ending is a model that tells when a call of it is over.
type ending struct {
	llm.Model
	ended func()
}

func (m ending) Stream(ctx context.Context, r llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		defer m.ended()
		m.Model.Stream(ctx, r)(yield)
	}
}
