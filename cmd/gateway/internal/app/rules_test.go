package app

import (
	"testing"

	"gateway/agent/policy"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
)

// A decision that a section of a tool does not set stays the same as without the section.
func TestNewRules(t *testing.T) {
	inherits := config.Tool{Owner: config.Inherit, Admin: config.Inherit, User: config.Inherit,
		Guest: config.Inherit}
	with := func(change func(t *config.Tool)) config.Tool {
		changed := inherits
		change(&changed)
		return changed
	}
	rules := newRules(&config.Config{
		Exec: config.Exec{Sandbox: "none"},
		MCP: map[string]config.Server{"x": {Enabled: true, Approve: "ask"},
			"x_y": {Enabled: true, Approve: "allow"}, "x_z": {Approve: "allow"}},
		Tools: map[string]config.Tool{
			"exec": with(func(t *config.Tool) {
				t.DenyCommands, t.AllowCommands = []string{"rm *"}, []string{"ls *"}
			}),
			"mcp_x_write": with(func(t *config.Tool) { t.User = "deny" }),
			"mcp_x_read":  with(func(t *config.Tool) { t.User = "allow" }),
		},
	})
	for _, test := range []struct {
		tool string
		argv []string
		role bus.Role
		want policy.Decision
	}{
		{"exec", []string{"cat", "config.toml"}, bus.Owner, policy.Ask},
		{"exec", []string{"rm", "x"}, bus.Owner, policy.Deny},
		{"exec", []string{"ls", "x"}, bus.Owner, policy.Allow},
		{"mcp_x_write", nil, bus.Owner, policy.Ask},
		{"mcp_x_write", nil, bus.User, policy.Deny},
		{"mcp_x_read", nil, bus.User, policy.Allow},
		{"mcp_x_other", nil, bus.User, policy.Ask},
		{"mcp_x_y_other", nil, bus.User, policy.Allow},
		{"mcp_x_z_other", nil, bus.User, policy.Ask}, // belongs to server x, because x_z is off
		{"read_file", nil, bus.User, policy.Allow},
	} {
		if got := rules.Decide(test.role, test.tool, test.argv, policy.Allow); got != test.want {
			t.Errorf("%s %q by %s: %s, want %s", test.tool, test.argv, test.role, got, test.want)
		}
	}
}
