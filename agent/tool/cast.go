package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gateway/store/plaintext"

	"github.com/google/jsonschema-go/jsonschema"
)

// caster converts values to the types that a schema requires if nothing is lost, and
// collects errors for the others. It knows the parts of JSON Schema that tools use, and
// leaves the rest to the validator.
type caster struct {
	problems []string
}

// object returns args with converted members.
func (c *caster) object(s *jsonschema.Schema, path string, args map[string]any) map[string]any {
	fit := make(map[string]any, len(args))
	for _, name := range slices.Sorted(maps.Keys(args)) {
		v := args[name]
		p := s.Properties[name]
		switch {
		case p == nil && closed(s):
			c.problems = append(c.problems, unknown(s, path, name))
		case p == nil:
			fit[name] = v
		case v == nil && !slices.Contains(s.Required, name) && !accepts(p, "null"):
			// Models write null for "not given".
		default:
			fit[name] = c.value(p, join(path, name), v)
		}
	}
	c.problems = append(c.problems, missing(s, path, fit)...)
	return fit
}

// value returns v converted to s.
func (c *caster) value(s *jsonschema.Schema, path string, v any) any {
	types := typesOf(s)
	if len(types) == 0 {
		return v
	}
	if !slices.ContainsFunc(types, func(t string) bool { return isType(t, v) }) {
		for _, t := range types {
			if cast, ok := castTo(t, s, v); ok {
				return c.inside(s, path, cast)
			}
		}
		c.problems = append(c.problems, fmt.Sprintf(
			"argument %q: want %s, not %s", path, wanted(s), describe(v)))
		return v
	}
	return c.inside(s, path, v)
}

// inside converts the elements of v, whose own type already fits s.
func (c *caster) inside(s *jsonschema.Schema, path string, v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, ok := integer(string(v)); ok && accepts(s, "integer") {
			return i // 5.0 is an integer in JSON Schema, but not in package json
		}
	case map[string]any:
		return c.object(s, path, v)
	case []any:
		if s.Items == nil {
			return v
		}
		list := make([]any, len(v))
		for i := range v {
			list[i] = c.value(s.Items, fmt.Sprintf("%s[%d]", path, i), v[i])
		}
		return list
	}
	if len(s.Enum) > 0 && !slices.Contains(enumTexts(s), encode(v)) {
		c.problems = append(c.problems, fmt.Sprintf(
			"argument %q: want %s, not %s", path, wanted(s), describe(v)))
	}
	return v
}

// isType reports whether v has the JSON type t.
func isType(t string, v any) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case json.Number:
		if t == "integer" {
			_, ok := integer(string(v))
			return ok || !strings.ContainsAny(string(v), ".eE") // an integer of any size
		}
		return t == "number"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	}
	return false
}

// castTo returns v as the JSON type t if the conversion loses nothing.
func castTo(t string, s *jsonschema.Schema, v any) (any, bool) {
	text, isText := v.(string)
	switch t {
	case "integer":
		if isText {
			return integer(strings.TrimSpace(text))
		}
	case "number":
		if text = strings.TrimSpace(text); isText && number().MatchString(text) {
			return json.Number(text), true
		}
	case "boolean":
		switch text {
		case "true", "True":
			return true, true
		case "false", "False":
			return false, true
		}
	case "string":
		switch v := v.(type) {
		case json.Number:
			return string(v), true
		case bool:
			return strconv.FormatBool(v), true
		}
	case "array":
		return castToList(s, v)
	case "object":
		if isText {
			inner, err := readJSON(unfence(text))
			object, ok := inner.(map[string]any)
			return object, ok && err == nil
		}
	}
	return nil, false
}

// castToList returns the list that the text v encodes, or a list with v as its only
// element. It never parses a text that may be meant as a string.
func castToList(s *jsonschema.Schema, v any) (any, bool) {
	if v == nil {
		return nil, false
	}
	if text, ok := v.(string); ok && s.Items != nil && !accepts(s.Items, "string") {
		inner, err := readJSON(unfence(text))
		if list, ok := inner.([]any); ok && err == nil {
			return list, true
		}
	}
	return []any{v}, true
}

// number matches a JSON number whose exponent is cheap to expand.
var number = plaintext.Pattern(`^-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$`)

// integer returns s as an integer without fraction and exponent, if an int64 can hold it.
func integer(s string) (json.Number, bool) {
	if !number().MatchString(s) {
		return "", false
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return "", false
	}
	return json.Number(r.Num().String()), true
}

// typesOf returns the JSON types that s allows, or nil if s does not restrict them.
func typesOf(s *jsonschema.Schema) []string {
	if s.Type != "" {
		return []string{s.Type}
	}
	return s.Types
}

// accepts reports whether s allows the JSON type t. It returns true if s does not restrict
// types.
func accepts(s *jsonschema.Schema, t string) bool {
	types := typesOf(s)
	return len(types) == 0 || slices.Contains(types, t)
}

// closed reports whether s allows no members besides its properties.
func closed(s *jsonschema.Schema) bool {
	if s.AdditionalProperties == nil || len(s.PatternProperties) > 0 {
		return false
	}
	none := &jsonschema.Schema{Not: &jsonschema.Schema{}} // the schema "false"
	return reflect.DeepEqual(s.AdditionalProperties, none)
}

// wanted describes the values that s allows.
func wanted(s *jsonschema.Schema) string {
	if len(s.Enum) > 0 {
		return "one of " + strings.Join(enumTexts(s), ", ")
	}
	names := map[string]string{
		"string": "a string", "integer": "a whole number", "number": "a number",
		"boolean": "true or false", "array": "a list", "object": "an object", "null": "null",
	}
	var texts []string
	for _, t := range typesOf(s) {
		texts = append(texts, names[t])
	}
	if len(texts) == 0 {
		return "a value"
	}
	return strings.Join(texts, " or ")
}

// enumTexts returns the values that s lists, as JSON.
func enumTexts(s *jsonschema.Schema) []string {
	texts := make([]string, len(s.Enum))
	for i, v := range s.Enum {
		texts[i] = encode(v)
	}
	return texts
}
