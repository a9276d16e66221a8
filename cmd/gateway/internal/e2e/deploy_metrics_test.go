package e2e

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"gateway/cmd/gateway/internal/ops"
)

var (
	metricName = regexp.MustCompile(`\b(?:gateway|go|process)_[a-z_]+`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
)

// scrape returns the names of the metrics of a gateway that has used a tool and has answered.
func scrape(t *testing.T) map[string]bool {
	t.Helper()
	w := newWorld(t, worldOptions{answer: followOrders})
	p := w.start("GATEWAY_HTTP__LISTEN=127.0.0.1:0")
	p.ready()
	w.telegram.Say(7, 7, `DO time {}`)
	var e ops.Endpoint
	waitUntil(t, func() error {
		var err error
		if e, err = ops.ReadEndpoint(w.home); err != nil {
			return err
		}
		if w.telegram.SentCount(7) == 0 {
			return errors.New("the bot has not answered")
		}
		return nil
	})
	names := make(map[string]bool)
	waitUntil(t, func() error {
		resp, err := http.Get("http://" + e.Address + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		for _, m := range metricType.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
			if m[2] == "histogram" {
				names[m[1]+"_bucket"] = true
			}
		}
		if err == nil && !names["gateway_answer_latency_seconds"] {
			err = errors.New("the answer is not noted yet")
		}
		return err
	})
	return names
}

// waitUntil calls cond until it returns nil. The test fails after patience.
func waitUntil(t *testing.T, cond func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for {
		err := cond()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal(err)
		}
	}
}

// TestDeployMetrics checks that alerts and the dashboard use only metrics that exist.
func TestDeployMetrics(t *testing.T) {
	t.Parallel()
	there := scrape(t)
	for _, name := range []string{"rules.yml", "rules_test.yml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join("../../../../deploy/prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		used := metricName.FindAllString(string(text), -1)
		if len(used) < 10 {
			t.Errorf("%s: %d metrics", name, len(used))
		}
		for _, metric := range used {
			if !there[metric] {
				t.Errorf("%s: the gateway has no metric %s", name, metric)
			}
		}
	}
}
