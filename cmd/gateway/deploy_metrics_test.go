package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gateway/cmd/gateway/internal/ops"
)

// A ruleFile is what deploy/prometheus/rules.yml may have.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

var (
	metricName = regexp.MustCompile(`\b(?:gateway|go|process)_[a-z_]+`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
)

// scrape returns the names of the series of a gateway that has used a tool and answered.
func scrape(t *testing.T) map[string]bool {
	t.Helper()
	w := newWorld(t, worldOptions{answer: obey})
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

// waitUntil calls cond until it has no error, or patience is at its end.
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

// TestDeployMetrics holds that alerts and the dashboard ask for nothing but what there is.
func TestDeployMetrics(t *testing.T) {
	t.Parallel()
	there := scrape(t)
	for _, name := range []string{"rules.yml", "rules_test.yml", "dashboard.json"} {
		text, err := readFile(filepath.Join(deployDir, "prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		used := metricName.FindAllString(text, -1)
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

// TestAlerts holds that each alert says what is the matter, is shown to fire, and is in the manual.
func TestAlerts(t *testing.T) {
	var rules ruleFile
	readYAML(t, "prometheus/rules.yml", &rules)
	manual, err := readFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := readFile(filepath.Join(deployDir, "prometheus/rules_test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.Annotations["summary"] == "" || r.Labels["severity"] == "" || r.Expr == "" {
				t.Errorf("%s: %+v", r.Alert, r)
			}
			if !strings.Contains(manual, "\n### "+r.Alert+"\n") {
				t.Errorf("docs/operations.md does not say what to do for %s", r.Alert)
			}
			if !strings.Contains(tests, `alertname="`+r.Alert+`"`) {
				t.Errorf("rules_test.yml does not have %s fire", r.Alert)
			}
		}
	}
}

// TestDashboard holds that each panel of the dashboard asks for something, and lies on no other.
func TestDashboard(t *testing.T) {
	text, err := readFile(filepath.Join(deployDir, "prometheus/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID          int
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d: %+v", p.ID, p)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			if target.Expr == "" {
				t.Errorf("%s asks for nothing", p.Title)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q, or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
