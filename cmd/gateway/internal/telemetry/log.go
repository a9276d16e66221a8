package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// WithTrace returns a handler that adds to each record the ids of the trace and the span in whose
// context it was made, and hands it to h.
func WithTrace(h slog.Handler) slog.Handler { return traced{h} }

type traced struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()),
			slog.String("span_id", s.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traced{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
