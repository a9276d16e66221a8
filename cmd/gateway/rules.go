package main

import (
	"gateway/agent/approval"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
)

// newRules returns which tool calls need approval.
func newRules(cfg *config.Config) approval.Rules {
	rules := make(approval.Rules)
	if cfg.Exec.Sandbox == "none" {
		// Nothing but somebody's eyes is between such a command and the machine.
		rules["exec"] = approval.Rule{Roles: everybody(approval.Ask)}
	}
	for name, t := range cfg.Tools {
		rule := approval.Rule{Roles: map[bus.Role]approval.Verdict{
			bus.Owner: approval.Verdict(t.Owner), bus.Admin: approval.Verdict(t.Admin),
			bus.User: approval.Verdict(t.User), bus.Guest: approval.Verdict(t.Guest),
		}}
		for _, list := range []struct {
			patterns []string
			verdict  approval.Verdict
		}{
			{t.DenyCommands, approval.Deny}, {t.AskCommands, approval.Ask},
			{t.AllowCommands, approval.Allow},
		} {
			for _, pattern := range list.patterns {
				// The configuration was checked for what can't be parsed.
				if c, err := approval.ParseCommand(pattern, list.verdict); err == nil {
					rule.Commands = append(rule.Commands, c)
				}
			}
		}
		rules[name] = rule
	}
	for name, s := range cfg.MCP {
		rules["mcp_"+name+"_*"] = approval.Rule{Roles: everybody(approval.Verdict(s.Approve))}
	}
	return rules
}

// everybody is a verdict for all roles.
func everybody(v approval.Verdict) map[bus.Role]approval.Verdict {
	return map[bus.Role]approval.Verdict{bus.Owner: v, bus.Admin: v, bus.User: v, bus.Guest: v}
}
