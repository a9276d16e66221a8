// Package telemetry shows operators what the gateway does: [Metrics] as numbers for Prometheus, and
// [Traces] as spans of OpenTelemetry, with the names that its conventions give to what agents do.
//
// Both are an [agent.Observer]. Labels have few values: accounts, models, tools, kinds of turns and
// what became of them; never a chat, a person or a session. Spans name the conversation, and have
// neither texts nor the arguments and results of tools.
//
// Where no traces go, none are made. They are sent by OTLP over HTTP, in builds with the tag "otlp"
// only. The package owns no tables.
package telemetry

import (
	"context"
	"errors"

	"gateway/agent"
	"gateway/agent/llm"
	"gateway/bus"
)

// kindOf returns a kind of turns as a label.
func kindOf(k bus.NoteKind) string {
	if k == "" {
		return "message"
	}
	return string(k)
}

// What has become of something, besides the kinds of a model's errors.
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
func turnOutcome(e agent.TurnEnd) string {
	if e.Err != nil {
		return failed
	}
	return string(e.State)
}

// unknownTool stands for all names that are none of a tool.
const unknownTool = "unknown"

// Both returns an observer that tells two others.
func Both(a, b agent.Observer) agent.Observer { return both{a, b} }

type both struct{ a, b agent.Observer }

// Turn implements [agent.Observer].
func (o both) Turn(
	ctx context.Context, t agent.TurnBegin,
) (context.Context, func(agent.TurnEnd)) {
	ctx, endA := o.a.Turn(ctx, t)
	ctx, endB := o.b.Turn(ctx, t)
	return ctx, func(e agent.TurnEnd) { endB(e); endA(e) }
}

// Model implements [agent.Observer].
func (o both) Model(
	ctx context.Context, m agent.ModelBegin,
) (context.Context, func(agent.ModelEnd)) {
	ctx, endA := o.a.Model(ctx, m)
	ctx, endB := o.b.Model(ctx, m)
	return ctx, func(e agent.ModelEnd) { endB(e); endA(e) }
}

// Tool implements [agent.Observer].
func (o both) Tool(
	ctx context.Context, t agent.ToolBegin,
) (context.Context, func(agent.ToolEnd)) {
	ctx, endA := o.a.Tool(ctx, t)
	ctx, endB := o.b.Tool(ctx, t)
	return ctx, func(e agent.ToolEnd) { endB(e); endA(e) }
}
