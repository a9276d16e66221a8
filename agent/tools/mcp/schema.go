package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"gateway/agent/llm"
)

// Limits of the description of one tool.
const (
	maxDescription = 1_000    // characters
	maxSchema      = 32 << 10 // bytes
	maxExpanded    = 10_000   // schemas against which one value is checked
	maxDepth       = 64       // of nested schemas
)

// repairSchema returns the schema of a tool's arguments in a form that providers and the gateway's
// own check support, or an error with the reason why that is impossible. The order matters: flatten
// merges schemas that are repaired already, and the last checks see what the provider gets.
func repairSchema(schema any) (json.RawMessage, error) {
	root, err := object(schema)
	if err != nil {
		return nil, err
	}
	if err := inline(root); err != nil {
		return nil, err
	}
	m := &repairer{}
	m.schema(root, 0)
	if m.err != nil {
		return nil, m.err
	}
	flatten(root)
	if root["properties"] == nil {
		root["properties"] = map[string]any{}
	}
	if err := bounded(root); err != nil {
		return nil, err
	}
	data, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	if len(data) > maxSchema {
		return nil, fmt.Errorf("its schema has %d bytes, more than %d", len(data), maxSchema)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("its schema is not valid: %s", oneLine(err.Error(), 200))
	}
	if _, err := s.Resolve(nil); err != nil {
		return nil, fmt.Errorf("its schema can't be used: %s", oneLine(err.Error(), 200))
	}
	return data, nil
}

// object returns schema as a JSON object. A missing schema, and true, accept any object.
func object(schema any) (map[string]any, error) {
	data, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	// The repair often makes a schema smaller.
	if len(data) > 4*maxSchema {
		return nil, fmt.Errorf("its schema has %d bytes, more than %d", len(data), maxSchema)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return map[string]any{"type": "object"}, nil
	case bool:
		if v {
			return map[string]any{"type": "object"}, nil
		}
		return nil, errors.New("its schema accepts no arguments at all")
	case map[string]any:
		return v, nil
	}
	return nil, errors.New("its schema is not an object")
}

// inline replaces a reference at the root by its target, because providers require an object there.
func inline(root map[string]any) error {
	// The number of steps ends a circle of references.
	for range 8 {
		ref, ok := root["$ref"].(string)
		if !ok {
			break
		}
		target, ok := llm.ResolveRef(root, ref).(map[string]any)
		if !ok || ref == "#" {
			return fmt.Errorf("its schema refers to %q, which is not there", oneLine(ref, 80))
		}
		delete(root, "$ref")
		for k, v := range target {
			if _, ok := root[k]; !ok {
				root[k] = duplicate(v)
			}
		}
	}
	switch t := root["type"].(type) {
	case nil:
		root["type"] = "object"
	case []any:
		if slices.Contains(t, any("object")) {
			root["type"] = "object"
		}
	}
	if root["type"] != "object" {
		return errors.New("its schema is not that of an object")
	}
	return nil
}

// duplicate returns a deep copy of a JSON value.
func duplicate(v any) (c any) {
	data, err := json.Marshal(v)
	if err != nil || json.Unmarshal(data, &c) != nil {
		return nil // can't occur: v was read from JSON
	}
	return c
}

// A repairer converts the old drafts' constructs in a schema, which generators still write.
type repairer struct {
	err error
}

// Keywords with nested schemas: by name, in a list, or a single one. Schemas of the keywords
// inPlace check the same value as the schema around them, not a part of it.
var (
	inNames = []string{"properties", "patternProperties", "$defs", "definitions",
		"dependentSchemas"}
	inLists = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	inOne   = []string{"items", "additionalItems", "additionalProperties", "contains", "not", "if",
		"then", "else", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
		"contentSchema"}
	inPlace = []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"}
)

// mapSubschemas replaces the schemas that are nested directly in s by the results of fn. It removes
// keywords that should have nested schemas and have none.
func mapSubschemas(s map[string]any, fn func(key string, sub any) any) {
	for key, value := range s {
		named, isNamed := value.(map[string]any)
		list, isList := value.([]any)
		byName := slices.Contains(inNames, key)
		inList := slices.Contains(inLists, key) || isList && key == "items"
		switch {
		case byName && isNamed:
			for name, sub := range named {
				named[name] = fn(key, sub)
			}
		case inList && len(list) > 0:
			for i, sub := range list {
				list[i] = fn(key, sub)
			}
		case byName || inList:
			delete(s, key)
		case slices.Contains(inOne, key):
			s[key] = fn(key, value)
		}
	}
}

// schema repairs s and its nested schemas. A nested null accepts any value, as {} does, and so does
// true, which servers of local models know only in additionalProperties. The check refuses what is
// neither a boolean nor an object.
func (m *repairer) schema(s map[string]any, depth int) {
	if depth > maxDepth {
		m.err = errors.New("its schema is too deep")
		return
	}
	m.keywords(s)
	mapSubschemas(s, func(key string, sub any) any {
		switch v := sub.(type) {
		case nil:
			return map[string]any{}
		case bool:
			if v && key != "additionalProperties" {
				return map[string]any{}
			}
		case map[string]any:
			m.schema(v, depth+1)
		}
		return sub
	})
}

// known has the keywords of the library that checks arguments.
var known = func() []string {
	// Schema decodes these itself.
	names := []string{"type", "items", "dependencies"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[jsonschema.Schema]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// isMisspelt reports whether key is a keyword but for capitals. It means nothing, but the library
// ignores the difference: for it, AnyOf is anyOf. The checks of this package would not see it.
func isMisspelt(key string) bool {
	return !slices.Contains(known, key) && slices.ContainsFunc(known, func(name string) bool {
		return strings.EqualFold(name, key)
	})
}

// keywords repairs the keywords of s itself.
func (m *repairer) keywords(s map[string]any) {
	for key, value := range s {
		if value == nil && key != "const" && key != "default" || isMisspelt(key) {
			delete(s, key)
		}
	}
	// They cost tokens in each request. $id would also change what references mean.
	for _, key := range []string{"$schema", "$id", "id", "$comment", "$anchor", "$vocabulary",
		"examples"} {
		delete(s, key)
	}
	// The servers of local models make one grammar of all schemas. They refuse every request if a
	// tool has a regular expression that is not simple, or a size that is not small. The MCP server
	// checks both.
	for _, key := range []string{"pattern", "minLength", "maxLength", "minItems", "maxItems"} {
		delete(s, key)
	}
	for _, key := range []string{"title", "description"} {
		if text, ok := s[key].(string); ok {
			s[key] = oneLine(text, maxDescription)
		} else {
			delete(s, key)
		}
	}
	for _, key := range []string{"Minimum", "Maximum"} { // draft 4
		if strict, ok := s["exclusive"+key].(bool); ok {
			delete(s, "exclusive"+key)
			if bound := strings.ToLower(key); strict && s[bound] != nil {
				s["exclusive"+key] = s[bound]
				delete(s, bound)
			}
		}
	}
	if _, ok := s["required"].(bool); ok { // draft 3
		delete(s, "required")
	}
	if list, ok := s["items"].([]any); ok { // draft 2019-09: a schema for each place
		delete(s, "items")
		if len(list) > 0 {
			s["prefixItems"] = list
		}
		if more := s["additionalItems"]; more != nil {
			s["items"] = more
		}
		delete(s, "additionalItems")
	}
	// OpenAI refuses a request if a list of any tool does not say what it contains.
	if s["items"] == nil && mayBe(s, "array") {
		s["items"] = map[string]any{}
	}
	if t, ok := s["type"].(string); ok && t == "any" { // draft 3
		delete(s, "type")
	}
	m.refuse(s)
}

// mayBe reports whether the types of s include name.
func mayBe(s map[string]any, name string) bool {
	types, _ := s["type"].([]any)
	return s["type"] == name || slices.Contains(types, any(name))
}

// refuse sets an error for keywords that can't be repaired.
func (m *repairer) refuse(s map[string]any) {
	for _, key := range []string{"$dynamicRef", "$recursiveRef", "$dynamicAnchor", "dependencies"} {
		if _, ok := s[key]; ok {
			m.err = fmt.Errorf("its schema has %q, which is not supported", key)
		}
	}
	if ref, ok := s["$ref"]; ok {
		text, ok := ref.(string)
		if !ok || text != "#" && !strings.HasPrefix(text, "#/") {
			m.err = fmt.Errorf("its schema refers to %q, which is not there", oneLine(fmt.Sprint(ref), 80))
		}
	}
	types, ok := s["type"].([]any)
	if !ok {
		types = []any{s["type"]}
	}
	for _, t := range types {
		switch t {
		case nil, "string", "number", "integer", "boolean", "object", "array", "null":
		default:
			m.err = fmt.Errorf("its schema has the type %q, which does not exist",
				oneLine(fmt.Sprint(t), 80))
		}
	}
}

// flatten removes alternatives at the root, which providers refuse. The model sees the properties
// of all alternatives; the server checks which of them go together.
func flatten(root map[string]any) {
	// Only allOf makes the properties of a branch required.
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := root[key].([]any)
		for _, branch := range list {
			b, ok := branch.(map[string]any)
			if !ok {
				continue
			}
			if ref, ok := b["$ref"].(string); ok {
				if b, ok = llm.ResolveRef(root, ref).(map[string]any); !ok {
					continue
				}
			}
			merge(root, b, key == "allOf")
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum",
		"const"} {
		delete(root, key)
	}
}

// merge adds the properties of branch to root. If always is set, it also adds the required ones.
func merge(root, branch map[string]any, always bool) {
	named, _ := branch["properties"].(map[string]any)
	have, ok := root["properties"].(map[string]any)
	if !ok {
		have = map[string]any{}
		root["properties"] = have
	}
	for name, sub := range named {
		if _, ok := have[name]; !ok {
			have[name] = duplicate(sub)
		}
	}
	required, _ := branch["required"].([]any)
	if !always || len(required) == 0 {
		return
	}
	all, _ := root["required"].([]any)
	for _, name := range required {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	root["required"] = all
}

// bounded returns an error for schemas whose check would not end, or take too long: those with
// circular references that do not descend into the value, and those that multiply.
func bounded(root map[string]any) error {
	b := &bounds{root: root, cost: make(map[string]int)}
	b.within(root)
	return b.err
}

// bounds is the state of counting the schemas of one root.
type bounds struct {
	root map[string]any
	cost map[string]int // cost of references' targets; -1 while it is counted
	err  error
}

// within counts s and all nested schemas.
func (b *bounds) within(s map[string]any) {
	if b.count(s) > maxExpanded && b.err == nil {
		b.err = errors.New("its schema multiplies without bound")
	}
	mapSubschemas(s, func(_ string, sub any) any {
		if v, ok := sub.(map[string]any); ok {
			b.within(v)
		}
		return sub
	})
}

// count returns the number of schemas against which a value is checked if it is checked against s.
func (b *bounds) count(s map[string]any) int {
	n := 1
	if ref, ok := s["$ref"].(string); ok {
		n += b.reference(ref)
	}
	mapSubschemas(s, func(key string, sub any) any {
		if v, ok := sub.(map[string]any); ok && slices.Contains(inPlace, key) {
			// The bound keeps the number from overflowing.
			n = min(n+b.count(v), maxExpanded+1)
		}
		return sub
	})
	return n
}

// reference returns the cost of the target of ref, which it counts once. A target that is met again
// while it is being counted refers to itself without a step into the value.
func (b *bounds) reference(ref string) int {
	if n, ok := b.cost[ref]; ok {
		if n < 0 && b.err == nil {
			b.err = fmt.Errorf("its schema refers in a circle, by %q", oneLine(ref, 80))
		}
		return max(n, 0)
	}
	target := llm.ResolveRef(b.root, ref)
	if _, ok := target.(bool); ok {
		return 1
	}
	s, ok := target.(map[string]any)
	if !ok {
		if b.err == nil {
			b.err = fmt.Errorf("its schema refers to %q, which is not there", oneLine(ref, 80))
		}
		return 0
	}
	b.cost[ref] = -1
	b.cost[ref] = b.count(s)
	return b.cost[ref]
}
