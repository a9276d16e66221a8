// Package telemetry provides the gateway's metrics for Prometheus: see [Metrics].
//
// Labels have few values: accounts, models, tools, kinds of turns and their outcomes, but never a
// chat, a person or a session. The package owns no tables.
package telemetry

import (
	"context"
	"errors"

	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/bus"
)

// kindOf returns the label of an origin kind.
func kindOf(k bus.OriginKind) string {
	if k == bus.Person {
		return "message"
	}
	return string(k)
}

// Labels of outcomes, besides the kinds of model errors.
const (
	fine     = "ok"
	failed   = "error"
	canceled = "canceled"
	waits    = "waits"
)

// outcomeOf returns the label of a call's outcome.
func outcomeOf(err error) string {
	if err == nil {
		return fine
	}
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return string(e.Kind)
	}
	if errors.Is(err, context.Canceled) {
		return canceled
	}
	return failed
}

// turnOutcome returns the label of a turn's outcome.
func turnOutcome(e observe.TurnEnd) string {
	if e.Err != nil {
		return failed
	}
	return string(e.State)
}

// unknownTool is the label for names of unknown tools.
const unknownTool = "unknown"
