package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"gateway/agent"
)

// A Target says where traces go.
type Target struct {
	Endpoint string            // URL of OTLP over HTTP, without its last part v1/traces
	Headers  map[string]string // of requests to it
	Timeout  time.Duration     // of one of them
	Sample   float64           // share of the turns that are traced
	Name     string            // of the agent
	Version  string            // of the gateway
}

// Traces are the spans of what the agent does: a turn, and within it the calls of models and tools.
// Their methods may be called concurrently.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	name     string
}

// OpenTraces returns traces that go to a target. It reports an error in a build that can't send
// any. They must be closed.
func OpenTraces(ctx context.Context, t Target) (*Traces, error) {
	exporter, err := newExporter(ctx, t)
	if err != nil {
		return nil, err
	}
	return newTraces(t, sdk.WithBatcher(exporter)), nil
}

func newTraces(t Target, export sdk.TracerProviderOption) *Traces {
	p := sdk.NewTracerProvider(export,
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(t.Sample))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "gateway"),
			attribute.String("service.version", t.Version))))
	return &Traces{p, p.Tracer("gateway"), t.Name}
}

// Close sends what is not sent yet, as far as that can be done until ctx ends.
func (t *Traces) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("telemetry: end traces: %w", err)
	}
	return nil
}

// Turn implements [agent.Observer].
func (t *Traces) Turn(
	ctx context.Context, b agent.TurnBegin,
) (context.Context, func(agent.TurnEnd)) {
	ctx, span := t.tracer.Start(ctx, opAgent+" "+t.name, trace.WithAttributes(
		attribute.String(attrOperation, opAgent), attribute.String(attrAgent, t.name),
		attribute.String(attrConversation, string(b.Session)),
		attribute.String(attrAccount, b.Account), attribute.String(attrKind, kindOf(b.Kind)),
		attribute.Int(attrAttempt, b.Attempt),
		attribute.Float64(attrWaited, b.Waited.Seconds())))
	return ctx, func(e agent.TurnEnd) {
		span.SetAttributes(attribute.Int64(attrTurn, e.Turn), attribute.Int(attrRounds, e.Rounds),
			attribute.String(attrOutcome, turnOutcome(e)))
		end(span, e.Err)
	}
}

// Model implements [agent.Observer].
func (t *Traces) Model(
	ctx context.Context, b agent.ModelBegin,
) (context.Context, func(agent.ModelEnd)) {
	ctx, span := t.tracer.Start(ctx, opChat+" "+b.Model, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String(attrOperation, opChat),
			attribute.String(attrRequestModel, b.Model), attribute.Bool(attrNotes, b.Notes)))
	return ctx, func(e agent.ModelEnd) {
		if e.Model != "" {
			span.SetAttributes(attribute.String(attrResponseModel, e.Model))
		}
		span.SetAttributes(attribute.Int(attrInput, e.Usage.Input),
			attribute.Int(attrCached, e.Usage.Cached), attribute.Int(attrOutput, e.Usage.Output),
			attribute.Float64(attrCost, e.Cost), attribute.Float64(attrFirst, e.First.Seconds()))
		end(span, e.Err)
	}
}

// Tool implements [agent.Observer]. A name is only told if it is that of a tool: else the model has
// made it up.
func (t *Traces) Tool(
	ctx context.Context, b agent.ToolBegin,
) (context.Context, func(agent.ToolEnd)) {
	ctx, span := t.tracer.Start(ctx, opTool, trace.WithAttributes(
		attribute.String(attrOperation, opTool), attribute.String(attrToolCall, b.ID)))
	return ctx, func(e agent.ToolEnd) {
		name := unknownTool
		if e.Known {
			name = b.Name
		}
		span.SetName(opTool + " " + name)
		span.SetAttributes(attribute.String(attrToolName, name), attribute.Bool(attrApproval, e.Waits))
		end(span, e.Err)
	}
}

// end ends a span. Of an error it says the kind only: its text may have what somebody wrote.
func end(span trace.Span, err error) {
	if err != nil {
		kind := outcomeOf(err)
		span.SetAttributes(attribute.String(attrError, kind))
		span.SetStatus(codes.Error, kind)
	}
	span.End()
}
