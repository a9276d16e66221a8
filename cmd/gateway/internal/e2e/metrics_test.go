package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"gateway/channels/telegram/telegramtest"
)

// series returns the gateway's metrics by name and labels. A histogram is represented by its
// count.
func (o *operator) series() map[string]float64 {
	o.t.Helper()
	code, text := o.get("/metrics")
	if code != 200 {
		o.t.Fatalf("/metrics = %d %s", code, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		o.t.Fatal(err)
	}
	all := make(map[string]float64)
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
			all[name+"{"+strings.Join(labels, ",")+"}"] = v
		}
	}
	return all
}

// TestMetrics checks the metrics of a conversation: messages, turns, model calls and tool calls.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: followOrders})
	o := w.operate()
	o.healthy(w)
	w.telegram.Say(1, 1, `DO time {}`)
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
	w.telegram.Say(1, 1, `DO nonsense_tool {}`)
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 2 })
	w.telegram.AddUser(telegramtest.User{ID: 2, First: "Anna"})
	w.telegram.Refuse(2, "Forbidden: bot was blocked by the user")
	w.telegram.Say(2, 2, "hello")
	const account = "account=telegram"
	want := map[string]float64{
		"gateway_messages_received_total{" + account + "}":       3,
		"gateway_messages_repeated_total{" + account + "}":       0,
		"gateway_messages_sent_total{" + account + "}":           2,
		"gateway_messages_dead_total{" + account + "}":           1,
		"gateway_messages_dropped_total{" + account + "}":        0,
		"gateway_channel_up{" + account + ",platform=telegram}":  1,
		"gateway_turns_total{kind=message,outcome=done}":         3,
		"gateway_turn_duration_seconds{kind=message}":            3,
		"gateway_turn_wait_seconds{kind=message}":                3,
		"gateway_answer_latency_seconds{" + account + "}":        2,
		"gateway_model_calls_total{model=fake,outcome=ok}":       5,
		"gateway_model_call_duration_seconds{model=fake}":        5,
		"gateway_model_first_output_seconds{model=fake}":         5,
		"gateway_tool_calls_total{outcome=ok,tool=time}":         1,
		"gateway_tool_calls_total{outcome=error,tool=unknown}":   1,
		"gateway_outbox_dead_letters{}":                          1,
		"gateway_outbox_open_messages{" + account + "}":          0,
		"gateway_inbox_waiting_messages{}":                       0,
		"gateway_sessions_busy{}":                                0,
		"gateway_panics_total{}":                                 0,
		"gateway_config_reloads_total{outcome=error}":            0,
		"gateway_messages_uncertain_total{" + account + "}":      0,
		"gateway_model_slots{}":                                  64,
		"gateway_messages_refused_total{account=terminal}":       0,
		"gateway_channel_restarts_total{" + account + "}":        0,
		"gateway_messages_received_total{account=terminal}":      0,
		"gateway_store_writes_stuck_seconds{}":                   0,
		"gateway_channel_up{account=terminal,platform=terminal}": 1,
		"gateway_tool_call_duration_seconds{tool=unknown}":       1,
		"gateway_model_slots_used{}":                             0,
		"gateway_sessions_suspended{}":                           0,
		"gateway_jobs_due{}":                                     0,
		"gateway_chores_due{}":                                   0,
		"gateway_outbox_bad_rows{}":                              0,
		"gateway_inbox_oldest_waiting_seconds{}":                 0,
		"gateway_config_reloads_total{outcome=ok}":               0,
		"gateway_outbox_open_messages{account=terminal}":         0,
	}
	var got map[string]float64
	defer func() {
		for key, v := range want {
			if g, ok := got[key]; t.Failed() && (!ok || g != v) {
				t.Errorf("%s = %v, want %v", key, g, v)
			}
		}
	}()
	w.repeat("the metrics to say so", func() bool {
		got = o.series()
		for key, v := range want {
			if g, ok := got[key]; !ok || g != v {
				return false
			}
		}
		return true
	})
	for _, direction := range []string{"input", "output"} {
		if n := got["gateway_model_tokens_total{direction="+direction+",model=fake}"]; n == 0 {
			t.Errorf("no tokens are counted as %s", direction)
		}
	}
	_, text := o.get("/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "gateway_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestMetricsAreBounded checks that more people don't add more series.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	o := w.operate()
	o.healthy(w)
	talk := func(first, last int64) {
		var list []telegramtest.Message
		for chat := first; chat <= last; chat++ {
			list = append(list, telegramtest.Message{User: chat, Text: fmt.Sprintf("hello from %d", chat)})
		}
		w.telegram.Deliver(list...)
		w.await("answers", func() bool {
			for chat := first; chat <= last; chat++ {
				if w.telegram.SentCount(chat) == 0 {
					return false
				}
			}
			return true
		})
		const sent = "gateway_messages_sent_total{account=telegram}"
		w.repeat("all to be counted", func() bool { return o.series()[sent] == float64(last) })
	}
	talk(1, 1)
	before := o.series()
	talk(2, 60)
	after := o.series()
	for key := range maps.Keys(after) {
		if _, ok := before[key]; !ok && strings.HasPrefix(key, "gateway_") {
			t.Errorf("%s has come with more chats", key)
		}
	}
}

// TestBudgetAndBackupMetrics checks the metrics of the day's budget and of the last backup.
func TestBudgetAndBackupMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{agent: "[budget]\nday_tokens = 1000000\nsession_tokens = 500000"})
	o := w.operate()
	o.healthy(w)
	const (
		day  = "gateway_budget_used_ratio{limit=day}"
		most = "gateway_budget_used_ratio{limit=session}"
		made = "gateway_backup_last_timestamp_seconds{}"
	)
	before := o.series()
	for _, key := range []string{day, most, made} {
		if v, ok := before[key]; !ok || v != 0 {
			t.Errorf("at first %s = %v, %t; want 0", key, v, ok)
		}
	}
	w.telegram.Say(1, 1, "hello")
	w.repeat("the budget to be used", func() bool {
		now := o.series()
		return now[day] > 0 && now[most] > now[day]
	})
	begin := time.Now().Unix()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if out, err := commandIn(t.Context(), path, w, "backup", file).CombinedOutput(); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	if at := o.series()[made]; at < float64(begin) {
		t.Errorf("the last backup was made at %v, want %v or later", at, begin)
	}
}
