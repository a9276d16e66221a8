//go:build otlp

package telemetry

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// newExporter returns what sends spans to a target.
func newExporter(ctx context.Context, t Target) (sdk.SpanExporter, error) {
	e, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(strings.TrimSuffix(t.Endpoint, "/")+"/v1/traces"),
		otlptracehttp.WithHeaders(t.Headers), otlptracehttp.WithTimeout(t.Timeout))
	if err != nil {
		return nil, fmt.Errorf("telemetry: traces to %s: %w", t.Endpoint, err)
	}
	return e, nil
}
