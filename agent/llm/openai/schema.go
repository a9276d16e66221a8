package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"gateway/agent/llm"
)

// maxPlain is how many schemas a plain schema has at most. References make it longer than the
// original.
const maxPlain = 2000

// plainSchema returns the schema of a tool in the subset of JSON Schema that Gemini and Kimi
// accept. They refuse every request that has a tool with another schema. The subset has no
// references and no lists of types, each schema has a type or alternatives that have types, and
// only strings have an enum. The subset is looser: the tool itself checks the rest.
func plainSchema(schema json.RawMessage) (json.RawMessage, error) {
	var root map[string]any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, err
	}
	p := &plainMaker{root: root, left: maxPlain}
	plain := p.ofType(p.expand(root), "object") // providers require this type at the root
	if plain["properties"] == nil {
		plain["properties"] = map[string]any{}
	}
	return json.Marshal(plain)
}

// A plainMaker makes plain schemas.
type plainMaker struct {
	root map[string]any
	open []string // references that are being replaced; one that occurs again has no end
	left int      // schemas that the result may still get
}

// schema returns the plain form of v, which is an object or a boolean.
func (p *plainMaker) schema(v any) map[string]any {
	before := len(p.open)
	defer func() { p.open = p.open[:before] }()
	p.left--
	s, _ := v.(map[string]any)
	s = p.expand(s)
	var list []map[string]any
	for _, t := range typesOf(s) {
		list = joinAlternative(list, p.ofType(s, t))
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		for _, branch := range listOf(s[key]) {
			b, ok := branch.(map[string]any)
			if !ok || b["type"] == "null" {
				continue
			}
			if b["type"] == nil && b["$ref"] == nil && s["type"] != nil {
				b = maps.Clone(b)
				b["type"] = s["type"]
			}
			plain := p.schema(b)
			if nested, ok := plain["anyOf"].([]map[string]any); ok {
				for _, n := range nested {
					list = joinAlternative(list, n)
				}
				continue
			}
			list = joinAlternative(list, plain)
		}
	}
	switch len(list) {
	case 0:
		// It accepts anything, which the subset can't express.
		return withDescription(p.ofType(s, "string"), s)
	case 1:
		return withDescription(list[0], s)
	}
	return withDescription(map[string]any{"anyOf": list}, s)
}

// expand returns s with the targets of its reference and the parts of its allOf.
func (p *plainMaker) expand(s map[string]any) map[string]any {
	for {
		ref, isRef := s["$ref"].(string)
		all := listOf(s["allOf"])
		if !isRef && len(all) == 0 {
			return s
		}
		s = maps.Clone(s)
		delete(s, "$ref")
		delete(s, "allOf")
		if isRef {
			target, _ := llm.ResolveRef(p.root, ref).(map[string]any)
			if slices.Contains(p.open, ref) || p.left < 0 {
				target = map[string]any{"type": target["type"]}
			}
			p.open = append(p.open, ref)
			s = joined(s, target)
		}
		for _, part := range all {
			part, _ := part.(map[string]any)
			s = joined(s, p.expand(part))
		}
	}
}

// joined returns s with what t has in addition.
func joined(s, t map[string]any) map[string]any {
	s = maps.Clone(s)
	for key, value := range t {
		named, isNamed := value.(map[string]any)
		have, has := s[key].(map[string]any)
		switch {
		case s[key] == nil:
			s[key] = value
		case key == "properties" && isNamed && has:
			named = maps.Clone(named)
			maps.Copy(named, have)
			s[key] = named
		case key == "required":
			s[key] = slices.Concat(listOf(s[key]), listOf(value))
		}
	}
	return s
}

// ofType returns the plain form of the expanded schema s for values of the type t, without the
// description of s.
func (p *plainMaker) ofType(s map[string]any, t string) map[string]any {
	plain := map[string]any{"type": t}
	values := listOf(s["enum"])
	if c, ok := s["const"]; ok {
		values = []any{c}
	}
	switch t {
	case "object":
		p.properties(plain, s)
	case "array":
		items := s["items"]
		if list := listOf(s["prefixItems"]); len(list) > 0 {
			items = map[string]any{"anyOf": list}
		}
		plain["items"] = map[string]any{"type": "string"}
		if p.left > 0 {
			plain["items"] = p.schema(items)
		}
	case "string":
		var words []any
		for _, v := range values {
			if word, ok := v.(string); ok && word != "" && !slices.Contains(words, v) {
				words = append(words, v)
			}
		}
		if len(words) > 0 {
			plain["enum"] = words
		}
	default:
		var words []string
		for _, v := range values {
			if word, err := json.Marshal(v); err == nil && v != nil {
				words = append(words, string(word))
			}
		}
		if len(words) > 0 {
			plain["description"] = "One of " + strings.Join(words, ", ") + "."
		}
	}
	return plain
}

// properties adds the properties of the object s to plain, and the list of the required ones.
func (p *plainMaker) properties(plain, s map[string]any) {
	named, _ := s["properties"].(map[string]any)
	if len(named) == 0 {
		return
	}
	properties := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if p.left > 0 {
			properties[name] = p.schema(named[name])
		}
	}
	plain["properties"] = properties
	var required []any
	for _, name := range listOf(s["required"]) {
		key, _ := name.(string)
		if properties[key] != nil && !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		plain["required"] = required
	}
}

// joinAlternative adds the plain schema s to a list of alternatives. Alternatives of one type
// become one that accepts the values of both.
func joinAlternative(list []map[string]any, s map[string]any) []map[string]any {
	for i, other := range list {
		if other["type"] != s["type"] {
			continue
		}
		list[i] = joined(other, s)
		delete(list[i], "required") // a value of one alternative lacks what the other requires
		delete(list[i], "enum")
		if a, b := listOf(other["enum"]), listOf(s["enum"]); a != nil && b != nil {
			b = slices.DeleteFunc(slices.Clone(b), func(v any) bool { return slices.Contains(a, v) })
			list[i]["enum"] = slices.Concat(a, b)
		}
		return list
	}
	return append(list, s)
}

// withDescription returns plain with the description of s before its own.
func withDescription(plain, s map[string]any) map[string]any {
	text, _ := s["description"].(string)
	own, _ := plain["description"].(string)
	if text = strings.TrimSpace(text); text != "" && !strings.Contains(own, text) {
		plain["description"] = strings.TrimSpace(text + " " + own)
	}
	return plain
}

// typesOf returns the types of the values that the expanded schema s accepts, without null. They
// follow from other keywords if s has no type. typesOf returns none if alternatives have the types.
func typesOf(s map[string]any) (types []string) {
	list := listOf(s["type"])
	if t, ok := s["type"].(string); ok {
		list = []any{t}
	}
	for _, t := range list {
		if t, ok := t.(string); ok && t != "null" {
			types = append(types, t)
		}
	}
	if len(types) > 0 || len(listOf(s["anyOf"])) > 0 || len(listOf(s["oneOf"])) > 0 {
		return types
	}
	for _, v := range slices.Concat(listOf(s["enum"]), []any{s["const"]}) {
		t := ""
		switch v.(type) {
		case string:
			t = "string"
		case float64:
			t = "number"
		case bool:
			t = "boolean"
		}
		if t != "" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	for _, hint := range [][2]string{{"properties", "object"}, {"additionalProperties", "object"},
		{"items", "array"}, {"prefixItems", "array"}, {"minimum", "number"}, {"maximum", "number"}} {
		if s[hint[0]] != nil && len(types) == 0 {
			types = append(types, hint[1])
		}
	}
	return types
}

// listOf returns v if it is a list, and otherwise nil.
func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}
