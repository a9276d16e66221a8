// Package telemetry provides the gateway's metrics for Prometheus: see [Metrics].
//
// Labels have few values: accounts, models, tools, kinds of turns and their outcomes, but never a
// chat, a person or a session. The package owns no tables.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/bus"
	"gateway/channels/recent"
	"gateway/cmd/gateway/internal/hooks"
)

// Metrics has the metrics of one gateway since it started. Its methods are safe for concurrent
// use.
type Metrics struct {
	registry *prometheus.Registry
	gauges   *gauges
	log      *slog.Logger

	turns, models, tokens, cost, tools, posts               *prometheus.CounterVec
	turnTime, waitTime, modelTime, firstTime, toolTime, lag *prometheus.HistogramVec

	arrivals *recent.Map[arrival, time.Time] // of messages that are not answered yet

	mu    sync.Mutex
	names map[string]bool // tools with a label of their own
}

// maxTools is the maximum number of tool labels. MCP servers choose the names of their tools.
const maxTools = 512

// Histogram buckets in seconds, from a quick tool to a long turn.
var (
	quick = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	slow  = []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280}
)

// NewMetrics returns the metrics of a gateway of a version. Each scrape reads the sources.
func NewMetrics(version string, from Sources, log *slog.Logger) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), gauges: newGauges(from), log: log,
		arrivals: recent.New[arrival, time.Time](maxArrivals), names: make(map[string]bool),
		turns: counter("gateway_turns_total",
			"Turns that ended, were suspended or continue in the next process (outcome running).",
			"kind", "outcome"),
		models: counter("gateway_model_calls_total",
			"Calls of models, by outcome.", "model", "outcome"),
		tokens: counter("gateway_model_tokens_total",
			"Tokens of models; direction input includes direction cached.",
			"model", "direction"),
		cost: counter("gateway_model_cost_dollars_total",
			"Cost of model calls, as far as prices are known.", "model"),
		tools: counter("gateway_tool_calls_total",
			"Calls of tools, by outcome.", "tool", "outcome"),
		posts: counter("gateway_hook_posts_total",
			"Posts to hooks, by outcome.", "hook", "outcome"),
		turnTime: histogram("gateway_turn_duration_seconds",
			"Time from the beginning of a turn to its end.", slow, "kind"),
		waitTime: histogram("gateway_turn_wait_seconds",
			"Time from the acceptance of a turn's first message to its beginning.", slow, "kind"),
		modelTime: histogram("gateway_model_call_duration_seconds",
			"Time of a model call.", slow, "model"),
		firstTime: histogram("gateway_model_first_output_seconds",
			"Time to the first piece of a model's answer.", slow, "model"),
		toolTime: histogram("gateway_tool_call_duration_seconds",
			"Time of a tool call.", quick, "tool"),
		lag: histogram("gateway_answer_latency_seconds",
			"Time from the acceptance of a message to the delivery of its answer.", slow, "account"),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gateway_build_info", Help: "Always 1; its labels have the version.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build, m.gauges,
		m.turns, m.models, m.tokens, m.cost, m.tools, m.posts,
		m.turnTime, m.waitTime, m.modelTime, m.firstTime, m.toolTime, m.lag)
	return m
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// scrapeTime is the time limit for counting the tables.
const scrapeTime = 5 * time.Second

// Handler serves the metrics. It logs and omits values that can't be read.
func (m *Metrics) Handler() http.Handler {
	h := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), scrapeTime)
		defer cancel()
		m.gauges.refresh(ctx)
		h.ServeHTTP(w, r)
	})
}

// Turn implements [observe.Observer].
func (m *Metrics) Turn(
	ctx context.Context, t observe.TurnBegin,
) (context.Context, func(observe.TurnEnd)) {
	began, kind := time.Now(), cmp.Or(string(t.Kind), "message")
	if t.Waited > 0 {
		m.waitTime.WithLabelValues(kind).Observe(t.Waited.Seconds())
	}
	return ctx, func(e observe.TurnEnd) {
		outcome := string(e.State)
		if e.Err != nil {
			outcome = failed
		}
		m.turns.WithLabelValues(kind, outcome).Inc()
		m.turnTime.WithLabelValues(kind).Observe(time.Since(began).Seconds())
	}
}

// Model implements [observe.Observer].
func (m *Metrics) Model(
	ctx context.Context, first string,
) (context.Context, func(observe.ModelEnd)) {
	began := time.Now()
	return ctx, func(e observe.ModelEnd) {
		model := cmp.Or(e.Model, first)
		m.models.WithLabelValues(model, outcomeOf(e.Err)).Inc()
		m.modelTime.WithLabelValues(model).Observe(time.Since(began).Seconds())
		if e.First > 0 {
			m.firstTime.WithLabelValues(model).Observe(e.First.Seconds())
		}
		// A model server may report negative numbers, with which a counter panics.
		m.tokens.WithLabelValues(model, "input").Add(float64(max(e.Usage.Input, 0)))
		m.tokens.WithLabelValues(model, "cached").Add(float64(max(e.Usage.Cached, 0)))
		m.tokens.WithLabelValues(model, "output").Add(float64(max(e.Usage.Output, 0)))
		m.cost.WithLabelValues(model).Add(max(e.Cost, 0))
	}
}

// Tool implements [observe.Observer].
func (m *Metrics) Tool(
	ctx context.Context, name string,
) (context.Context, func(observe.ToolEnd)) {
	began := time.Now()
	return ctx, func(e observe.ToolEnd) {
		tool, outcome := unknownTool, outcomeOf(e.Err)
		if e.Known {
			tool = m.toolLabel(name)
		}
		if e.Waits {
			outcome = waits
		}
		m.tools.WithLabelValues(tool, outcome).Inc()
		m.toolTime.WithLabelValues(tool).Observe(time.Since(began).Seconds())
	}
}

// toolLabel returns the label of a tool: its name, or "other" for tools beyond maxTools.
func (m *Metrics) toolLabel(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.names[name] {
		if len(m.names) == maxTools {
			return "other"
		}
		m.names[name] = true
	}
	return name
}

// Posted counts a post to a hook.
func (m *Metrics) Posted(hook string, o hooks.Outcome) {
	m.posts.WithLabelValues(hook, string(o)).Inc()
}

// Admitted records the arrival time of messages.
func (m *Metrics) Admitted(messages []bus.InboundMessage) {
	now := time.Now()
	for _, in := range messages {
		m.arrivals.Put(arrival{in.From.Account, in.From.Chat, in.ID}, now)
	}
}

// Delivered measures how long people have waited for an answer. It does not measure answers to
// messages that an earlier process has accepted.
func (m *Metrics) Delivered(out bus.OutboundMessage) {
	now := time.Now()
	for _, id := range out.Answers {
		if at, ok := m.arrivals.Delete(arrival{out.To.Account, out.To.Chat, id}); ok {
			m.lag.WithLabelValues(out.To.Account).Observe(now.Sub(at).Seconds())
		}
	}
}

// An arrival identifies a message.
type arrival struct{ account, chat, id string }

// maxArrivals is the maximum number of messages that wait for an answer, as some never get one.
const maxArrivals = 8192

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

// unknownTool is the label for names of unknown tools.
const unknownTool = "unknown"
