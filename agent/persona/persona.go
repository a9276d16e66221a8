// Package persona decides who the agent is in a chat, and what it may use there. A [Persona] is a
// character with documents, a model, tools and skills of its own. A [Policy] applies to accounts,
// chats or people, and names a persona, a model and limits. The main type is [Table].
//
// The most specific policy decides about persona, model, activity and voice: one for people counts
// before one for chats, and that before one for accounts. Limits add up: what one layer withholds,
// no other layer gives back.
package persona

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gateway/bus"
)

// A Persona is a character of the agent.
type Persona struct {
	ID    string // key in the configuration, and name of its folder of documents
	Name  string // what the agent calls itself; "": its usual name
	Model string // name of a model; "": the usual one
	Limits
}

// A Policy applies to accounts, chats or people. A message must match each of the three lists. An
// empty list matches every message; at least one list is not empty.
type Policy struct {
	ID       string
	Accounts []string // names
	Chats    []string // in the form account/chat or account/chat/thread
	People   []string // in the form account/id, or numbers of people

	Persona  string // ID of a persona; "": as elsewhere
	Model    string // name of a model; "": as elsewhere
	Activity string // how much of the work is shown; "": as elsewhere
	Voice    string // when answers are spoken; "": as elsewhere
	Limits
}

// Limits restrict tools and skills. Each entry is a name; a "*" at its end stands for any
// characters.
type Limits struct {
	Tools  []string // the only tools; empty: all
	Deny   []string // tools that are withheld
	Ask    []string // tools that need approval
	Skills []string // the only skills; empty: all
}

// Hides reports whether l withholds a tool. like names another tool whose rules hold for it,
// too, or is "".
func (l *Limits) Hides(tool, like string) bool {
	return len(l.Tools) > 0 && !matches(l.Tools, tool) ||
		matches(l.Deny, tool) || like != "" && matches(l.Deny, like)
}

// Asks reports whether l wants approval for a tool.
func (l *Limits) Asks(tool string) bool { return matches(l.Ask, tool) }

// HidesSkill reports whether l withholds a skill.
func (l *Limits) HidesSkill(name string) bool {
	return len(l.Skills) > 0 && !matches(l.Skills, name)
}

// matches reports whether one of patterns matches name.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// Match reports whether a pattern of [Limits] matches name.
func Match(pattern, name string) bool {
	prefix, many := strings.CutSuffix(pattern, "*")
	return pattern == name || many && strings.HasPrefix(name, prefix)
}

// A Place is where the agent works, and for whom.
type Place struct {
	Address bus.Address
	Sender  bus.Sender // zero: nobody in particular
	Person  int64      // 0: unknown
}

// PlaceOf returns the place in which a turn that answers m works.
func PlaceOf(m *bus.InboundMessage) Place { return Place{m.From, m.Sender, m.Person} }

// A Table holds all personas and policies. It never changes, so it is safe for concurrent use.
type Table struct {
	// Before returns the id that a chat had before the platform gave it another one, or "". It must
	// be safe for concurrent use. nil: chats keep their ids.
	Before func(bus.Address) string

	personas map[string]*Persona
	policies []*Policy // the most specific last
}

// NewTable returns a Table, or nil if there are no policies. No method may be called on nil.
func NewTable(personas []Persona, policies []Policy) *Table {
	if len(policies) == 0 {
		return nil
	}
	t := &Table{personas: make(map[string]*Persona)}
	for i := range personas {
		t.personas[personas[i].ID] = &personas[i]
	}
	for i := range policies {
		t.policies = append(t.policies, &policies[i])
	}
	slices.SortFunc(t.policies, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.specificity(), b.specificity()), cmp.Compare(b.ID, a.ID))
	})
	return t
}

// specificity returns the rank of p: the policy with the higher rank counts. Of two policies with
// the same rank, the one whose ID comes first in the alphabet counts.
func (p *Policy) specificity() (n int) {
	for i, list := range [][]string{p.Accounts, p.Chats, p.People} {
		if len(list) > 0 {
			n += 1 << i
		}
	}
	return n
}

// appliesTo reports whether p applies to a place.
func (p *Policy) appliesTo(at Place) bool {
	return within(p.Accounts, func(s string) bool { return s == at.Address.Account }) &&
		within(p.Chats, func(s string) bool { return isChat(s, at.Address) }) &&
		within(p.People, at.isFor)
}

// within reports whether list is empty or has an entry for which is returns true.
func within(list []string, is func(string) bool) bool {
	return len(list) == 0 || slices.ContainsFunc(list, is)
}

// isChat reports whether s names the chat or the thread of an address.
func isChat(s string, a bus.Address) bool {
	rest, ok := strings.CutPrefix(s, a.Account+"/")
	return ok && (rest == a.Chat || a.Thread != "" && rest == a.Chat+"/"+a.Thread)
}

// isFor reports whether s names the person at a place. On WhatsApp, s may contain a phone number:
// the adapter stores the sender's phone number as their user name.
func (at Place) isFor(s string) bool {
	account, id, ok := strings.Cut(s, "/")
	if !ok {
		return at.Person != 0 && s == strconv.FormatInt(at.Person, 10)
	}
	return account == at.Address.Account && id != "" && (id == at.Sender.ID ||
		strings.HasPrefix(id, "+") && id == at.Sender.Username)
}

// A Choice has the persona, the settings and the limits that apply in a place.
type Choice struct {
	Persona  *Persona  // nil: none
	Model    string    // "": the usual one
	Activity string    // "": as usual
	Voice    string    // "": as usual
	Policies []string  // IDs of the policies that apply, the most specific last
	Layers   []*Limits // limits of the policies and the persona; all of them apply
}

// ID returns the ID of the persona, or "".
func (c *Choice) ID() string {
	if c.Persona == nil {
		return ""
	}
	return c.Persona.ID
}

// HiddenSkills returns a function that reports whether a skill is withheld, or nil if none is.
func (c *Choice) HiddenSkills() func(name string) bool {
	if !slices.ContainsFunc(c.Layers, func(l *Limits) bool { return len(l.Skills) > 0 }) {
		return nil
	}
	return func(name string) bool {
		return slices.ContainsFunc(c.Layers, func(l *Limits) bool { return l.HidesSkill(name) })
	}
}

// At returns the persona, the settings and the limits for a place.
func (t *Table) At(at Place) Choice {
	c, id := t.apply(at)
	return t.with(c, id)
}

// Policies returns the IDs of the policies for a place, and their limits without those of the
// persona. It also returns those of the policies in more, wherever they apply.
func (t *Table) Policies(at Place, more []string) ([]string, []*Limits) {
	c, _ := t.apply(at)
	for _, p := range t.policies {
		if slices.Contains(more, p.ID) && !slices.Contains(c.Policies, p.ID) {
			c.Policies = append(c.Policies, p.ID)
			c.limit(&p.Limits)
		}
	}
	return c.Policies, c.Layers
}

// Resumed is like [Table.At], for a turn that began with the persona id, or without one if id is
// "". The turn keeps that persona. If it is no longer configured, the turn gets the one that a new
// turn would get.
func (t *Table) Resumed(at Place, id string) Choice {
	c, now := t.apply(at)
	if id != "" && t.personas[id] == nil {
		id = now
	}
	return t.with(c, id)
}

// apply returns the settings and the limits of the policies for a place, and the ID of the persona
// that they name.
func (t *Table) apply(at Place) (c Choice, id string) {
	before := at // a policy for the earlier id of the chat goes on
	if t.Before != nil && at.Address.Chat != "" {
		before.Address.Chat = cmp.Or(t.Before(at.Address), at.Address.Chat)
	}
	for _, p := range t.policies {
		if p.appliesTo(at) || before != at && p.appliesTo(before) {
			id, c.Model = cmp.Or(p.Persona, id), cmp.Or(p.Model, c.Model)
			c.Activity, c.Voice = cmp.Or(p.Activity, c.Activity), cmp.Or(p.Voice, c.Voice)
			c.Policies = append(c.Policies, p.ID)
			c.limit(&p.Limits)
		}
	}
	return c, id
}

// with returns c with a persona; "": none.
func (t *Table) with(c Choice, id string) Choice {
	if c.Persona = t.personas[id]; c.Persona != nil {
		c.Model = cmp.Or(c.Model, c.Persona.Model)
		c.limit(&c.Persona.Limits)
	}
	return c
}

// limit adds a layer of limits unless it limits nothing.
func (c *Choice) limit(l *Limits) {
	if len(l.Tools)+len(l.Deny)+len(l.Ask)+len(l.Skills) > 0 {
		c.Layers = append(c.Layers, l)
	}
}
