package checks

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// A ruleFile has the keys that deploy/prometheus/rules.yml may have.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

// TestAlerts checks that each alert has a summary, fires in the tests of the rules, and is
// explained in the manual.
func TestAlerts(t *testing.T) {
	var rules ruleFile
	readYAML(t, "prometheus/rules.yml", &rules)
	manual, err := readFile("../../../../docs/alerts.md")
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
			if !strings.Contains(manual, "\n## "+r.Alert+"\n") {
				t.Errorf("docs/alerts.md does not say what to do for %s", r.Alert)
			}
			if !strings.Contains(tests, `alertname="`+r.Alert+`"`) {
				t.Errorf("rules_test.yml does not have %s fire", r.Alert)
			}
		}
	}
}

// TestDashboard checks that each panel of the dashboard has a query and overlaps no other panel.
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
