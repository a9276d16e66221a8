//go:build !otlp

package telemetry

import (
	"strings"
	"testing"
)

// A build that can't send traces says so, and what to do.
func TestNoExporter(t *testing.T) {
	_, err := OpenTraces(t.Context(), Target{Endpoint: "http://127.0.0.1:1", Sample: 1})
	if err == nil || !strings.Contains(err.Error(), "-tags otlp") {
		t.Errorf("OpenTraces = %v, want an error with a remedy", err)
	}
}
