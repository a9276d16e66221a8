package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"gateway/agent"
	"gateway/agent/llm"
	"gateway/agent/observe"
	"gateway/bus"
	"gateway/session"
	"gateway/store"
)

// newTestMetrics returns metrics of a gateway with a database and one account.
func newTestMetrics(t *testing.T) (*Metrics, *Sources) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.db")
	db, err := store.Open(t.Context(), path, []store.Migration{bus.Migration}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	from := &Sources{
		DB: db, Path: path,
		Agent:    func() agent.Stats { return agent.Stats{Slots: 64, Used: 2, Busy: 3, Suspended: 1} },
		DiskFree: func() (uint64, error) { return 12345, nil },
		Reloads:  func() (int64, int64) { return 4, 1 },
		Budget: func(store.Queryer) (map[string]float64, error) {
			return map[string]float64{"day": .25}, nil
		},
		LastBackup: func() (time.Time, error) { return time.Unix(1_800_000_000, 0), nil },
		Accounts: []Account{{"tg", "telegram", func() AccountState {
			return AccountState{Up: true, Restarts: 5, Received: 6, Dropped: 7, Refused: 8, Sent: 9,
				Uncertain: 10, Dead: 11}
		}}},
		Counts: []Count{{"gateway_things_due", "Things.",
			func(q store.Queryer, _ time.Time) (n int, err error) {
				err = q.QueryRow("SELECT count(*) + 42 FROM inbox").Scan(&n)
				return n, err
			}}},
	}
	return NewMetrics("1.2.3", *from, slog.New(slog.DiscardHandler)), from
}

// scrape returns the metrics as the handler serves them.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("code %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			found := regexp.MustCompile(`(?m)^`+name+`.*$`).FindAllString(text, -1)
			t.Errorf("there is no line %s, but %q", line, found)
		}
	}
}

func TestObserved(t *testing.T) {
	m, _ := newTestMetrics(t)
	aTurn(t.Context(), m)
	_, end := m.Tool(t.Context(), "exec")
	end(observe.ToolEnd{Known: true, Err: context.Canceled})
	has(t, scrape(t, m),
		`gateway_turns_total{kind="hook",outcome="failed"} 1`,
		`gateway_turn_duration_seconds_count{kind="hook"} 1`,
		`gateway_turn_wait_seconds_sum{kind="hook"} 1.5`,
		`gateway_model_calls_total{model="spare",outcome="ok"} 1`,
		`gateway_model_calls_total{model="main",outcome="overloaded"} 1`,
		`gateway_model_tokens_total{direction="input",model="spare"} 100`,
		`gateway_model_tokens_total{direction="cached",model="spare"} 60`,
		`gateway_model_tokens_total{direction="output",model="spare"} 20`,
		`gateway_model_cost_dollars_total{model="spare"} 0.25`,
		`gateway_model_first_output_seconds_sum{model="spare"} 1`,
		`gateway_tool_calls_total{outcome="ok",tool="exec"} 1`,
		`gateway_tool_calls_total{outcome="canceled",tool="exec"} 1`,
		`gateway_tool_calls_total{outcome="error",tool="unknown"} 1`,
		`gateway_tool_calls_total{outcome="waits",tool="ask"} 1`,
	)
}

// Negative numbers, which a model server may report, are not counted and don't end the turn.
func TestNegativeUsage(t *testing.T) {
	m, _ := newTestMetrics(t)
	_, end := m.Model(t.Context(), "main")
	end(observe.ModelEnd{Cost: -1, Usage: llm.Usage{Input: -1, Cached: -1, Output: -1}})
	end(observe.ModelEnd{Cost: 2, Usage: llm.Usage{Input: 3, Output: -4}})
	has(t, scrape(t, m),
		`gateway_model_calls_total{model="main",outcome="ok"} 2`,
		`gateway_model_tokens_total{direction="input",model="main"} 3`,
		`gateway_model_tokens_total{direction="output",model="main"} 0`,
		`gateway_model_cost_dollars_total{model="main"} 2`,
	)
}

func TestGauges(t *testing.T) {
	m, from := newTestMetrics(t)
	err := from.DB.Tx(t.Context(), func(tx *store.Tx) error {
		for i := range 3 {
			_, err := bus.NewInbox().Put(tx, bus.InboundMessage{ID: fmt.Sprint(i),
				From: bus.Address{Account: "tg", Chat: "1"}}, time.Now().Add(-time.Hour))
			if err != nil {
				return err
			}
		}
		return bus.NewOutbox().Put(tx, bus.OutboundMessage{
			To: bus.Address{Account: "tg", Chat: "1"}}, time.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m)
	has(t, text,
		`gateway_channel_up{account="tg",platform="telegram"} 1`,
		`gateway_channel_restarts_total{account="tg"} 5`,
		`gateway_messages_received_total{account="tg"} 6`,
		`gateway_messages_dropped_total{account="tg"} 7`,
		`gateway_messages_refused_total{account="tg"} 8`,
		`gateway_messages_sent_total{account="tg"} 9`,
		`gateway_messages_uncertain_total{account="tg"} 10`,
		`gateway_messages_dead_total{account="tg"} 11`,
		`gateway_inbox_waiting_messages 3`,
		`gateway_outbox_open_messages{account="tg"} 1`,
		`gateway_outbox_dead_letters 0`,
		`gateway_things_due 45`,
		`gateway_model_slots 64`, `gateway_model_slots_used 2`,
		`gateway_sessions_busy 3`, `gateway_sessions_suspended 1`,
		`gateway_config_reloads_total{outcome="ok"} 4`,
		`gateway_config_reloads_total{outcome="error"} 1`,
		`gateway_store_disk_free_bytes 12345`,
		`gateway_budget_used_ratio{limit="day"} 0.25`,
		`gateway_backup_last_timestamp_seconds 1.8e+09`,
		`gateway_store_writes_stuck_seconds 0`,
	)
	oldest := regexp.MustCompile(`gateway_inbox_oldest_waiting_seconds (3[67]\d\d)\.`)
	for _, want := range []*regexp.Regexp{oldest,
		regexp.MustCompile(`gateway_build_info\{go="go[^"]+",version="1.2.3"\} 1`),
		regexp.MustCompile(`gateway_store_database_bytes [1-9]`),
		regexp.MustCompile(`\ngo_goroutines [1-9]`),
	} {
		if !want.MatchString(text) {
			t.Errorf("there is no %s", want)
		}
	}
}

// A metric whose value can't be determined is left out. All others are served.
func TestBroken(t *testing.T) {
	m, from := newTestMetrics(t)
	from.DiskFree = func() (uint64, error) { return 0, errors.New("no disk") }
	m.gauges.from.DiskFree = from.DiskFree
	if err := from.DB.Close(); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m)
	has(t, text, `gateway_model_slots 64`, `gateway_channel_up{account="tg",platform="telegram"} 1`)
	for _, name := range []string{"gateway_inbox_waiting_messages", "gateway_store_disk_free_bytes"} {
		if strings.Contains(text, "\n"+name+" ") {
			t.Errorf("%s is told, though nobody knows it", name)
		}
	}
}

// Names and help texts of the metrics follow the conventions of Prometheus.
func TestLint(t *testing.T) {
	m, _ := newTestMetrics(t)
	aTurn(t.Context(), m)
	scrape(t, m)
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The number of series does not grow with the number of chats, people and made-up tools.
func TestBounded(t *testing.T) {
	m, _ := newTestMetrics(t)
	use := func(i int) {
		from := bus.Address{Account: "tg", Chat: fmt.Sprint(i)}
		m.Admitted([]bus.InboundMessage{{ID: "1", From: from, Sender: bus.Sender{ID: fmt.Sprint(i)}}})
		m.Delivered(bus.OutboundMessage{To: from, Answers: []string{"1"}})
		_, end := m.Turn(t.Context(), observe.TurnBegin{})
		end(observe.TurnEnd{})
		_, endTool := m.Tool(t.Context(), fmt.Sprintf("made_up_%d", i))
		endTool(observe.ToolEnd{})
	}
	use(0)
	before := strings.Count(scrape(t, m), "\n")
	for i := range 3000 {
		use(i)
	}
	if after := strings.Count(scrape(t, m), "\n"); after != before {
		t.Errorf("%d lines after 3,000 chats, %d after one", after, before)
	}
	for i := range 3000 { // a server that has other tools each time
		_, end := m.Tool(t.Context(), fmt.Sprintf("mcp_x_%d", i))
		end(observe.ToolEnd{Known: true})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.names) != maxTools {
		t.Errorf("%d tools have a label, want %d", len(m.names), maxTools)
	}
}

func TestLatency(t *testing.T) {
	m, _ := newTestMetrics(t)
	from := bus.Address{Account: "tg", Chat: "1"}
	put := func(first, n int) {
		for i := first; i < first+n; i++ {
			m.Admitted([]bus.InboundMessage{{ID: fmt.Sprint(i), From: from}})
		}
	}
	put(0, 3)
	m.Delivered(bus.OutboundMessage{To: from, Answers: []string{"0", "1", "unknown"}})
	m.Delivered(bus.OutboundMessage{To: from, Answers: []string{"1"}}) // is not counted twice
	m.Delivered(bus.OutboundMessage{To: bus.Address{Account: "tg", Chat: "2"}, Answers: []string{"2"}})
	has(t, scrape(t, m), `gateway_answer_latency_seconds_count{account="tg"} 2`)
	put(3, maxArrivals) // so many that message 2 is forgotten
	m.Delivered(bus.OutboundMessage{To: from, Answers: []string{"2"}})
	m.Delivered(bus.OutboundMessage{To: from, Answers: []string{"3"}})
	has(t, scrape(t, m), `gateway_answer_latency_seconds_count{account="tg"} 3`)
	var all []string
	for i := range maxArrivals + 3 {
		all = append(all, fmt.Sprint(i))
	}
	m.Delivered(bus.OutboundMessage{To: from, Answers: all}) // maxArrivals-1 are remembered
	has(t, scrape(t, m), fmt.Sprintf(`gateway_answer_latency_seconds_count{account="tg"} %d`,
		3+maxArrivals-1))
}

// aTurn reports to an observer a turn with two model calls and three tool calls. It returns the
// context of the turn.
func aTurn(ctx context.Context, o observe.Observer) context.Context {
	ctx, endTurn := o.Turn(ctx, observe.TurnBegin{Kind: bus.Hook, Waited: 1500 * time.Millisecond})
	_, endModel := o.Model(ctx, "main")
	endModel(observe.ModelEnd{Model: "spare", First: time.Second, Cost: 0.25,
		Usage: llm.Usage{Input: 100, Cached: 60, Output: 20}})
	_, endTool := o.Tool(ctx, "exec")
	endTool(observe.ToolEnd{Known: true})
	_, endTool = o.Tool(ctx, "what the model says")
	endTool(observe.ToolEnd{Err: errors.New("there is no tool of a secret name")})
	_, endTool = o.Tool(ctx, "ask")
	endTool(observe.ToolEnd{Known: true, Waits: true})
	_, endModel = o.Model(ctx, "main")
	endModel(observe.ModelEnd{Err: &llm.Error{Kind: llm.Overloaded, Model: "main"}})
	endTurn(observe.TurnEnd{State: session.Failed})
	return ctx
}
