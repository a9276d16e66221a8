package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gateway/agent/persona"
	"gateway/agent/suggest"
)

// A Persona is a character of the agent. Its documents are in a folder of the data directory.
type Persona struct {
	Name   string   `key:"name"`   // what the agent calls itself; "": its usual name
	Model  string   `key:"model"`  // a key of Config.Models; "": the usual one
	Tools  []string `key:"tools"`  // patterns of the only tools; empty: all
	Skills []string `key:"skills"` // patterns of the only skills; empty: all
}

// A Policy sets the persona, the model, the limits and more for some accounts, chats or people.
type Policy struct {
	Accounts []string `key:"accounts"` // keys of Config.Channels; empty: any, as in the next two
	Chats    []string `key:"chats"`    // account/chat or account/chat/thread
	People   []string `key:"people"`   // account/id, or a person's number

	Persona  string   `key:"persona"` // a key of Config.Personas; "": as elsewhere
	Model    string   `key:"model"`   // a key of Config.Models; "": as elsewhere
	Activity string   `key:"activity" allowed:"inherit off compact full"`
	Voice    string   `key:"voice" allowed:"inherit never always auto"`
	Tools    []string `key:"tools"`  // patterns of the only tools; empty: all
	Deny     []string `key:"deny"`   // patterns of tools that are withheld
	Ask      []string `key:"ask"`    // patterns of tools that need approval
	Skills   []string `key:"skills"` // patterns of the only skills; empty: all
}

// Limits returns the tools and skills that p withholds, and the tools that need approval.
func (p Policy) Limits() persona.Limits {
	return persona.Limits{Tools: p.Tools, Deny: p.Deny, Ask: p.Ask, Skills: p.Skills}
}

// Restricts reports whether p applies to everybody on an account, and either withholds a tool or
// requires approval for it.
func (p Policy) Restricts(account, tool string) bool {
	l := p.Limits()
	return len(p.Chats)+len(p.People) == 0 && slices.Contains(p.Accounts, account) &&
		(l.Hides(tool, "") || l.Asks(tool))
}

// validatePolicies reports mistakes in [personas] and [policies].
func (v validator) validatePolicies() {
	for name, p := range Sorted(v.cfg.Personas) {
		at := []string{"personas", name}
		v.checkModels(append(at, "model"), optional(p.Model))
		v.checkPatterns(append(at, "tools"), p.Tools)
	}
	for name, p := range Sorted(v.cfg.Policies) {
		v.validatePolicy(name, p)
	}
}

// validatePolicy reports mistakes in [policies.NAME]. The forms of ids are not checked here: an id
// without an effect is a warning, see policyWarnings.
func (v validator) validatePolicy(name string, p Policy) {
	at := func(key string) []string { return []string{"policies", name, key} }
	if len(p.Accounts)+len(p.Chats)+len(p.People) == 0 {
		v.report([]string{"policies", name}, "want accounts, chats or people that it applies to")
	}
	for _, account := range p.Accounts {
		v.checkAccount(at("accounts"), account)
	}
	for _, chat := range p.Chats {
		if account, id, _ := strings.Cut(chat, "/"); id == "" {
			v.report(at("chats"), fmt.Sprintf("want account/chat, not %q", chat))
		} else {
			v.checkAccount(at("chats"), account)
		}
	}
	for _, who := range p.People {
		account, id, _ := strings.Cut(who, "/")
		if _, err := strconv.ParseUint(who, 10, 63); err == nil {
			continue
		}
		if id == "" {
			v.report(at("people"),
				fmt.Sprintf("want account/id or the number of a person, not %q", who))
		} else {
			v.checkAccount(at("people"), account)
		}
	}
	if _, ok := v.cfg.Personas[p.Persona]; !ok && p.Persona != "" {
		v.report(at("persona"), fmt.Sprintf("there is no [personas.%s]%s", p.Persona,
			suggest.Hint(p.Persona, slices.Sorted(maps.Keys(v.cfg.Personas)))))
	}
	v.checkModels(at("model"), optional(p.Model))
	v.checkPatterns(at("tools"), p.Tools)
	v.checkPatterns(at("deny"), p.Deny)
	v.checkPatterns(at("ask"), p.Ask)
}

// checkAccount reports a problem of the key at path if name is not an account.
func (v validator) checkAccount(path []string, name string) {
	if _, ok := v.cfg.Channels[name]; !ok {
		v.report(path, noAccount(name, v.cfg))
	}
}

// checkPatterns reports a problem of the key at path if one of patterns can match no tool.
func (v validator) checkPatterns(path, patterns []string) {
	for _, p := range patterns {
		prefix, many := strings.CutSuffix(p, "*")
		begins := func(name string) bool { return strings.HasPrefix(name, prefix) }
		servers := slices.Collect(maps.Keys(v.cfg.MCP))
		if isTool(v.cfg, p) || many && (slices.ContainsFunc(ToolNames(), begins) ||
			slices.ContainsFunc(servers, func(name string) bool { return begins(ToolPrefix(name)) })) {
			continue
		}
		v.report(path, noTool(p))
	}
}

// policyWarnings returns the settings of policies that [Config.Warnings] reports.
func (c *Config) policyWarnings() (list []warning) {
	for name, p := range c.Policies {
		for key, entries := range map[string][]string{"chats": p.Chats, "people": p.People} {
			for _, entry := range entries {
				account, id, ok := strings.Cut(entry, "/")
				id, _, _ = strings.Cut(id, "/") // without a thread
				platform := c.Channels[account].Type
				if text := badIDs(platform, key, []string{id}); ok && text != "" {
					list = append(list, warning{[]string{"policies", name, key}, text})
				}
			}
		}
	}
	return list
}
