package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"gateway/agent/llm"
	"gateway/agent/suggest"
	"gateway/bus"
)

// A Registry is a set of tools. It is safe for concurrent use.
type Registry struct {
	mu      sync.RWMutex
	sources map[string][]string // names of the tools added by Set, by source
	tools   map[string]entry
	specs   []llm.ToolSpec         // all tools, sorted by name; immutable once shared
	offered []llm.ToolSpec         // the result of Specs; immutable
	roles   map[bus.Role]*Registry // results of For since the last change of tools
}

type entry struct {
	tool   Tool
	schema func() (*jsonschema.Resolved, error)
	added  bool   // by Set
	rare   string // as Tool.Rare, also if there are too many tools
}

// NewRegistry returns a registry of tools. It returns an error for a duplicate name, for a
// name that providers refuse, and for a schema that is not an object schema.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{tools: make(map[string]entry, len(tools)), sources: make(map[string][]string)}
	for _, t := range tools {
		if err := r.add(t, false); err != nil {
			return nil, err
		}
	}
	r.offer()
	return r, nil
}

// add adds t. The caller, which is Set if added is true, holds r.mu, or r is not shared yet.
func (r *Registry) add(t Tool, added bool) error {
	if _, ok := r.tools[t.Name]; ok || t.Name == MoreName {
		return fmt.Errorf("tool: two tools have the name %q", t.Name)
	}
	schema, err := validate(t)
	if err != nil {
		return fmt.Errorf("tool: %q: %w", t.Name, err)
	}
	r.tools[t.Name] = entry{tool: t, schema: schema, added: added}
	r.specs = insert(r.specs, llm.ToolSpec{
		Name: t.Name, Description: t.Description, Schema: withProperties(t.Schema),
	})
	return nil
}

// withProperties returns a copy of schema with a properties member, even if it is empty,
// because some providers require it.
func withProperties(schema json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(schema, &fields)
	if _, ok := fields["properties"]; ok || err != nil {
		return slices.Clone(schema)
	}
	fields["properties"] = json.RawMessage("{}")
	if mended, err := json.Marshal(fields); err == nil {
		return mended
	}
	return slices.Clone(schema)
}

// insert returns specs with s inserted in name order.
func insert(specs []llm.ToolSpec, s llm.ToolSpec) []llm.ToolSpec {
	i, _ := slices.BinarySearchFunc(specs, s.Name,
		func(s llm.ToolSpec, name string) int { return cmp.Compare(s.Name, name) })
	return slices.Insert(specs, i, s)
}

// Set replaces the tools of an earlier Set with the same source. It leaves out tools that
// [NewRegistry] would refuse; the error names all of them. Registries returned earlier by
// [Registry.For] stay unchanged.
func (r *Registry) Set(source string, tools []Tool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.specs, r.roles = slices.Clone(r.specs), nil
	for _, name := range r.sources[source] {
		delete(r.tools, name)
		r.specs = slices.DeleteFunc(r.specs, func(s llm.ToolSpec) bool { return s.Name == name })
	}
	r.sources[source] = nil
	var errs []error
	for _, t := range tools {
		if err := r.add(t, true); err != nil {
			errs = append(errs, err)
			continue
		}
		r.sources[source] = append(r.sources[source], t.Name)
	}
	r.offer()
	return errors.Join(errs...)
}

// Select returns a registry of the current tools for which keep returns true.
func (r *Registry) Select(keep func(t Tool) bool) *Registry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.choose(keep)
}

// choose is Select for a caller that holds r.mu.
func (r *Registry) choose(keep func(t Tool) bool) *Registry {
	kept := &Registry{tools: make(map[string]entry, len(r.tools)), sources: make(map[string][]string)}
	for _, spec := range r.specs {
		if e := r.tools[spec.Name]; keep(e.tool) {
			kept.tools[spec.Name] = e
			kept.specs = append(kept.specs, spec)
		}
	}
	kept.offer()
	return kept
}

// For returns a registry of the current tools that a role may use. It returns the same
// registry until the tools change. The caller must not modify it.
func (r *Registry) For(role bus.Role) *Registry {
	if !role.Valid() {
		role = "" // there may be many unknown roles
	}
	r.mu.RLock()
	known, ok := r.roles[role]
	r.mu.RUnlock()
	if ok {
		return known
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	chosen := r.choose(func(t Tool) bool { return t.MinRole == "" || role.AtLeast(t.MinRole) })
	if r.roles == nil {
		r.roles = make(map[bus.Role]*Registry)
	}
	r.roles[role] = chosen
	return chosen
}

// validate returns a function that returns the schema for checking the arguments of t.
func validate(t Tool) (func() (*jsonschema.Resolved, error), error) {
	switch {
	case t.Name == "" || len(t.Name) > 64 || t.Name != llm.PlainName(t.Name):
		return nil, errors.New(`want a name of at most 64 letters, digits, "_" or "-"`)
	case t.Description == "":
		return nil, errors.New("want a description")
	case t.Effect < Once || t.Effect > Pure:
		return nil, fmt.Errorf("there is no %v", t.Effect)
	case t.Run == nil:
		return nil, errors.New("want a Run function")
	case t.derived.schema != nil && bytes.Equal(t.derived.text, t.Schema):
		// Resolve the schema on first use, because it is slow and the gateway has many tools at
		// startup.
		return sync.OnceValues(t.derived.schema), nil
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(t.Schema, &s); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if s.Type != "object" {
		return nil, errors.New(`schema: want "type": "object"`)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return func() (*jsonschema.Resolved, error) { return resolved, nil }, nil
}

// Specs returns the descriptions of the tools for a model, sorted by name. They are the
// same bytes each time, so that the provider can cache the prompt. The caller must not
// modify them. The description of [MoreName] stands for the rare tools.
func (r *Registry) Specs() []llm.ToolSpec {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clip(r.offered)
}

// Lookup returns the tool with this name. The model reads the error.
func (r *Registry) Lookup(name string) (Tool, error) {
	e, err := r.lookup(name)
	return e.tool, err
}

// Arguments returns the arguments that a model wrote for a tool, as an object that fits
// the tool's schema, for [Call].Args. It corrects mistakes that can be corrected without
// guessing. The model reads the error.
func (r *Registry) Arguments(name, written string) (json.RawMessage, error) {
	e, err := r.lookup(name)
	if err != nil {
		return nil, err
	}
	schema, err := e.schema()
	if err != nil {
		return nil, err
	}
	args, err := CheckArguments(schema, e.tool.Aliases, written)
	if err != nil && e.rare != "" { // the model may not have seen the schema
		err = fmt.Errorf("%w\nArguments of %s: %s", err, name, e.tool.Schema)
	}
	return args, err
}

func (r *Registry) lookup(name string) (entry, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e, ok := r.tools[name]; ok {
		return e, nil
	}
	if len(r.specs) == 0 {
		return entry{}, fmt.Errorf("there is no tool %q, and there are no other tools", name)
	}
	names := make([]string, len(r.specs))
	for i, s := range r.specs {
		names[i] = s.Name
	}
	return entry{}, fmt.Errorf("there is no tool %q%s; the tools are: %s",
		name, suggest.Hint(name, names), strings.Join(names, ", "))
}
