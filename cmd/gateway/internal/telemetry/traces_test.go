package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"gateway/agent"
	"gateway/agent/llm"
	"gateway/bus"
	"gateway/session"
)

// record returns traces, and what they have come to.
func record(t *testing.T, sample float64) (*Traces, func() map[string]tracetest.SpanStub) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	traces := newTraces(Target{Name: "gw", Version: "1.2", Sample: sample}, sdk.WithSyncer(exporter))
	t.Cleanup(func() {
		if err := traces.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return traces, func() map[string]tracetest.SpanStub {
		spans := make(map[string]tracetest.SpanStub)
		for _, s := range exporter.GetSpans() {
			spans[s.Name] = s
		}
		return spans
	}
}

// attributes returns those of a span, as text.
func attributes(s tracetest.SpanStub) map[string]string {
	list := make(map[string]string)
	for _, a := range s.Attributes {
		list[string(a.Key)] = fmt.Sprint(a.Value.AsInterface())
	}
	return list
}

// aTurn tells an observer of a turn with two model calls and three tool calls. It returns the
// context within the turn.
func aTurn(ctx context.Context, o agent.Observer) context.Context {
	ctx, endTurn := o.Turn(ctx, agent.TurnBegin{Session: "telegram/7", Account: "telegram",
		Kind: bus.Hook, Waited: 1500 * time.Millisecond})
	_, endModel := o.Model(ctx, agent.ModelBegin{Model: "main"})
	endModel(agent.ModelEnd{Model: "spare", First: time.Second, Cost: 0.25,
		Usage: llm.Usage{Input: 100, Cached: 60, Output: 20}})
	_, endTool := o.Tool(ctx, agent.ToolBegin{Name: "exec", ID: "c1"})
	endTool(agent.ToolEnd{Known: true})
	_, endTool = o.Tool(ctx, agent.ToolBegin{Name: "what the model says", ID: "c2"})
	endTool(agent.ToolEnd{Err: errors.New("there is no tool of a secret name")})
	_, endTool = o.Tool(ctx, agent.ToolBegin{Name: "ask", ID: "c3"})
	endTool(agent.ToolEnd{Known: true, Waits: true})
	_, endModel = o.Model(ctx, agent.ModelBegin{Model: "main", Notes: true})
	endModel(agent.ModelEnd{Err: &llm.Error{Kind: llm.Overloaded, Model: "main"}})
	endTurn(agent.TurnEnd{Turn: 5, State: session.Failed, Rounds: 1})
	return ctx
}

func TestTraces(t *testing.T) {
	traces, spans := record(t, 1)
	aTurn(t.Context(), traces)
	got := spans()
	turn, ok := got["invoke_agent gw"]
	if !ok || turn.Parent.IsValid() {
		t.Fatalf("spans = %v, want a turn at the root", got)
	}
	for name, s := range got {
		if name != "invoke_agent gw" && s.Parent.SpanID() != turn.SpanContext.SpanID() {
			t.Errorf("%s is not within the turn", name)
		}
		for key, value := range attributes(s) {
			if strings.Contains(value, "secret") || strings.Contains(value, "what the model says") {
				t.Errorf("%s: %s = %q is foreign text", name, key, value)
			}
		}
	}
	for name, want := range map[string]map[string]string{
		"invoke_agent gw": {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "gw",
			"gen_ai.conversation.id": "telegram/7", "gateway.turn.kind": "hook",
			"gateway.turn.id": "5", "gateway.turn.outcome": "failed", "gateway.turn.rounds": "1",
			"gateway.turn.waited_seconds": "1.5", "gateway.account": "telegram"},
		"chat main": {"gen_ai.operation.name": "chat", "gen_ai.request.model": "main",
			"error.type": "overloaded", "gateway.model.notes": "true"}, // the second of two
		"execute_tool exec": {"gen_ai.operation.name": "execute_tool",
			"gen_ai.tool.name": "exec", "gen_ai.tool.call.id": "c1"},
		"execute_tool unknown": {"gen_ai.tool.name": "unknown", "error.type": "error"},
		"execute_tool ask":     {"gateway.tool.waits": "true"},
	} {
		attrs := attributes(got[name])
		for key, value := range want {
			if attrs[key] != value {
				t.Errorf("%s: %s = %q, want %q", name, key, attrs[key], value)
			}
		}
	}
	if s := got["chat main"].Status; s.Code != codes.Error || s.Description != "overloaded" {
		t.Errorf("status of a failed call = %+v", s)
	}
}

func TestModelSpan(t *testing.T) {
	traces, spans := record(t, 1)
	_, end := traces.Model(t.Context(), agent.ModelBegin{Model: "main"})
	end(agent.ModelEnd{Model: "spare", First: time.Second, Cost: 0.25,
		Usage: llm.Usage{Input: 100, Cached: 60, Output: 20}})
	attrs := attributes(spans()["chat main"])
	for key, want := range map[string]string{
		"gen_ai.response.model": "spare", "gen_ai.usage.input_tokens": "100",
		"gen_ai.usage.cache_read.input_tokens": "60", "gen_ai.usage.output_tokens": "20",
		"gateway.model.cost_dollars": "0.25", "gateway.model.first_output_seconds": "1",
	} {
		if attrs[key] != want {
			t.Errorf("%s = %q, want %q", key, attrs[key], want)
		}
	}
}

// Turns that are not among the sample are traced in no part.
func TestSample(t *testing.T) {
	traces, spans := record(t, 0)
	aTurn(t.Context(), traces)
	if got := spans(); len(got) > 0 {
		t.Errorf("spans = %v, want none", got)
	}
}

// Lines of the log that are written within a span name it, and others have nothing more.
func TestLog(t *testing.T) {
	traces, spans := record(t, 1)
	var out bytes.Buffer
	log := slog.New(WithTrace(slog.NewJSONHandler(&out, nil))).With("session", "s")
	ctx, end := traces.Turn(t.Context(), agent.TurnBegin{})
	log.InfoContext(ctx, "within")
	end(agent.TurnEnd{})
	log.InfoContext(t.Context(), "beside")
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, m)
	}
	span := spans()["invoke_agent gw"].SpanContext
	if lines[0]["trace_id"] != span.TraceID().String() ||
		lines[0]["span_id"] != span.SpanID().String() || lines[0]["session"] != "s" {
		t.Errorf("line = %v, want the ids of %v", lines[0], span)
	}
	if _, ok := lines[1]["trace_id"]; ok {
		t.Errorf("line = %v, want no trace", lines[1])
	}
}
