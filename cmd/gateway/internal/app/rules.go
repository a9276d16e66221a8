package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"gateway/agent/audit"
	"gateway/agent/persona"
	"gateway/agent/policy"
	"gateway/agent/turn"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// newRules returns the approval rules for tool calls: the built-in rules, then those of MCP
// servers, then those of single tools. A later rule overrides an earlier one.
func newRules(cfg *config.Config) policy.Rules {
	var rules policy.Rules
	if cfg.Exec.Sandbox == "none" {
		// Without a sandbox, approval is the only protection of the machine.
		rules = append(rules, policy.Rule{Tool: "exec", Roles: everybody(policy.Ask)})
	}
	// The names are sorted: if one server's name is a prefix of another's, the longer one comes
	// later and wins. Tools with the prefix of a disabled server belong to another server.
	for name, s := range config.Sorted(cfg.MCP) {
		if s.Enabled {
			rules = append(rules, policy.Rule{
				Tool: config.ToolPrefix(name) + "*", Roles: everybody(policy.Decision(s.Approve))})
		}
	}
	for name, t := range config.Sorted(cfg.Tools) {
		rules = append(rules, newRule(name, t))
	}
	return rules
}

// newRule returns the rule for a table [tools.NAME].
func newRule(name string, t config.Tool) policy.Rule {
	rule := policy.Rule{Tool: name, Roles: make(map[bus.Role]policy.Decision)}
	for role, decision := range map[bus.Role]string{bus.Owner: t.Owner, bus.Admin: t.Admin,
		bus.User: t.User, bus.Guest: t.Guest} {
		// A role that is missing in the rule inherits the decision of earlier rules.
		if decision != config.Inherit {
			rule.Roles[role] = policy.Decision(decision)
		}
	}
	// The first match decides, so the strictest list comes first.
	for _, list := range []struct {
		patterns []string
		decision policy.Decision
	}{
		{t.DenyCommands, policy.Deny}, {t.AskCommands, policy.Ask},
		{t.AllowCommands, policy.Allow},
	} {
		for _, pattern := range list.patterns {
			// The configuration was validated: all patterns can be parsed.
			if c, err := policy.ParseCommand(pattern, list.decision); err == nil {
				rule.Commands = append(rule.Commands, c)
			}
		}
	}
	return rule
}

// auditedRules returns a hash for each key that decides who may do what.
func auditedRules(cfg *config.Config) audit.Rules {
	rules := make(audit.Rules)
	add := func(key string, values ...any) {
		// A hash shows that a key has changed, without storing what it says. Eight bytes are enough
		// for that.
		sum := sha256.Sum256(fmt.Appendf(nil, "%q", values))
		rules[key] = hex.EncodeToString(sum[:8])
	}
	add("approvals", cfg.Approvals)
	add("exec", cfg.Exec.Sandbox, cfg.Exec.Network, cfg.Exec.Env)
	for name, t := range cfg.Tools {
		add("tools."+name, t)
	}
	for name, s := range cfg.MCP {
		add("mcp."+name, s.Enabled, s.Approve, s.Role, s.Allow, s.Sandbox, s.Network)
	}
	for name, p := range cfg.Policies {
		add("policies."+name, p)
	}
	for name, p := range cfg.Personas {
		add("personas."+name, p)
	}
	for name, c := range cfg.Channels {
		add("channels."+name, c.Enabled, c.Access, c.Allow, c.Owners, c.Groups, c.Activation)
	}
	return rules
}

// auditRules writes an audit entry if the rules have changed.
func (g *Gateway) auditRules(ctx context.Context, cfg *config.Config) {
	rules := auditedRules(cfg)
	same, err := audit.SameRules(g.db.Read(ctx), rules)
	if err == nil && !same {
		err = g.db.Tx(ctx, func(tx *store.Tx) error { return audit.NoteRules(tx, rules, time.Now()) })
	}
	if err != nil && ctx.Err() == nil {
		g.log.WarnContext(ctx, "the audit log does not say whether rules have changed", "err", err)
	}
}

// everybody returns the same decision for all roles.
func everybody(v policy.Decision) map[bus.Role]policy.Decision {
	return map[bus.Role]policy.Decision{bus.Owner: v, bus.Admin: v, bus.User: v, bus.Guest: v}
}

// newTable returns the personas and policies of a configuration, or nil if it has no policies.
func newTable(cfg *config.Config) *persona.Table {
	var personas []persona.Persona
	for name, p := range config.Sorted(cfg.Personas) {
		personas = append(personas, persona.Persona{ID: name, Name: p.Name, Model: p.Model,
			Limits: persona.Limits{Tools: p.Tools, Skills: p.Skills}})
	}
	var policies []persona.Policy
	for name, p := range config.Sorted(cfg.Policies) {
		policy := persona.Policy{ID: name, Accounts: p.Accounts, Chats: p.Chats, People: p.People,
			Persona: p.Persona, Model: p.Model, Activity: inherited(p.Activity),
			Voice: inherited(p.Voice), Limits: p.Limits()}
		policies = append(policies, policy)
	}
	return persona.NewTable(personas, policies)
}

// inherited returns the value of a key of a policy, or "" if the policy does not set it.
func inherited(value string) string {
	if value == config.Inherit {
		return ""
	}
	return value
}

// places returns the settings that differ between accounts, chats and people, or nil if none do.
func (g *Gateway) places(cfg *config.Config) *turn.Places {
	table := newTable(cfg)
	if table == nil {
		return nil
	}
	table.Before = g.gate.PreviousID
	p := &turn.Places{Table: table, Models: make(map[string]*turn.Choice)}
	if len(cfg.Personas) > 0 {
		p.Documents = g.home.knowledge.personaDocuments(cfg)
	}
	add := func(name string) {
		if name != "" && p.Models[name] == nil {
			c := g.choice(cfg, name)
			p.Models[name] = &c
		}
	}
	for _, policy := range cfg.Policies {
		add(policy.Model)
	}
	for _, persona := range cfg.Personas {
		add(persona.Model)
	}
	return p
}
