package main

import (
	"gateway/agent/approval"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
)

// newRules returns which tool calls need approval: what holds by itself first, then what is said of
// servers, then what is said of single tools.
func newRules(cfg *config.Config) approval.Rules {
	var rules approval.Rules
	if cfg.Exec.Sandbox == "none" {
		// Nothing but somebody's eyes is between such a command and the machine.
		rules = append(rules, approval.Rule{Tool: "exec", Roles: everybody(approval.Ask)})
	}
	// The tools of a server whose name begins like another's follow the longer one, so that it
	// comes later. Those of a server that is switched off are somebody else's.
	for _, name := range sortedKeys(cfg.MCP) {
		if s := cfg.MCP[name]; s.Enabled {
			rules = append(rules, approval.Rule{
				Tool: config.ToolPrefix(name) + "*", Roles: everybody(approval.Verdict(s.Approve))})
		}
	}
	for _, name := range sortedKeys(cfg.Tools) {
		rules = append(rules, newRule(name, cfg.Tools[name]))
	}
	return rules
}

// newRule returns the rule that a [tools.NAME] describes.
func newRule(name string, t config.Tool) approval.Rule {
	rule := approval.Rule{Tool: name, Roles: make(map[bus.Role]approval.Verdict)}
	for role, said := range map[bus.Role]string{bus.Owner: t.Owner, bus.Admin: t.Admin,
		bus.User: t.User, bus.Guest: t.Guest} {
		if said != config.Inherit {
			rule.Roles[role] = approval.Verdict(said)
		}
	}
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
	return rule
}

// everybody is a verdict for all roles.
func everybody(v approval.Verdict) map[bus.Role]approval.Verdict {
	return map[bus.Role]approval.Verdict{bus.Owner: v, bus.Admin: v, bus.User: v, bus.Guest: v}
}
