// Package telemetry has the metrics of the gateway for Prometheus: see [Metrics].
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

// kindOf returns a kind of turns as a label.
func kindOf(k bus.OriginKind) string {
	if k == bus.Person {
		return "message"
	}
	return string(k)
}

// Outcomes, besides the kinds of a model's errors.
const (
	fine     = "ok"
	failed   = "error"
	canceled = "canceled"
	waits    = "waits"
)

// outcomeOf returns what an error says of a call as a label.
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

// turnOutcome returns what has become of a turn as a label.
func turnOutcome(e observe.TurnEnd) string {
	if e.Err != nil {
		return failed
	}
	return string(e.State)
}

// unknownTool stands for all names that are none of a tool.
const unknownTool = "unknown"
