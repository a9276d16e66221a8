package agent

import (
	"context"
	"iter"

	"gateway/agent/llm"
)

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
