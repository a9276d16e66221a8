package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"gateway/agent/suggest"
	"gateway/store/plainjson"
	"gateway/store/plaintext"
)

// maxSuggestLen is the length up to which names are compared with known ones, in bytes.
const maxSuggestLen = 100

// CheckArguments returns the arguments that a model wrote for a tool, as an object that
// fits the tool's schema. It corrects mistakes that can be corrected without guessing. The
// error tells the model what is wrong. aliases are as in [Tool].
func CheckArguments(
	schema *jsonschema.Resolved, aliases map[string]string, written string,
) (json.RawMessage, error) {
	args, err := readObject(schema.Schema(), written)
	if err != nil {
		return nil, err
	}
	for alias, target := range aliases {
		name, form, formed := strings.Cut(target, "=")
		v, ok := args[alias]
		if n, number := v.(json.Number); formed && number {
			v = fmt.Sprintf(form, n)
		} else if formed {
			continue // the error names the arguments that there are
		}
		if _, both := args[name]; ok && !both { // refuse both: which one is meant would be a guess
			args[name] = v
			delete(args, alias)
		}
	}
	c := &caster{}
	fit := c.object(schema.Schema(), "", args)
	if len(c.problems) > 0 {
		return nil, errors.New(strings.Join(c.problems, "\n"))
	}
	if err := schema.Validate(plain(fit)); err != nil {
		return nil, fmt.Errorf("the arguments do not fit: %s", innermost(err))
	}
	return json.Marshal(fit)
}

// readObject finds the object in the text of a model. The object may be missing, or be
// inside a code fence, a JSON string or the key "arguments".
func readObject(s *jsonschema.Schema, written string) (map[string]any, error) {
	for range 4 { // the deepest nesting that models produce
		v, err := readJSON(unfence(written))
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case nil:
			return map[string]any{}, nil
		case string:
			written = v
		case map[string]any:
			inner, ok := v["arguments"]
			if _, known := s.Properties["arguments"]; !ok || known || len(v) > 1 {
				return v, nil
			}
			if text, ok := inner.(string); ok {
				written = text
			} else if object, ok := inner.(map[string]any); ok {
				return object, nil
			} else {
				return v, nil
			}
		default:
			return nil, fmt.Errorf("the arguments must be one JSON object, not %s", describe(v))
		}
	}
	return nil, errors.New("the arguments must be one JSON object, not a string of strings")
}

// unfence returns the content of a Markdown code fence if s is one.
func unfence(s string) string {
	s = strings.TrimSpace(s)
	inner, ok := strings.CutPrefix(s, "```")
	if !ok {
		return s
	}
	if info, rest, ok := strings.Cut(inner, "\n"); ok && !strings.ContainsAny(info, `{["`) {
		inner = rest
	}
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(inner), "```"))
}

// readJSON returns the single JSON value in s, or nil if s is empty. Numbers keep their
// spelling.
func readJSON(s string) (any, error) {
	if s == "" {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends too early")
		}
		return nil, fmt.Errorf("the arguments are not valid JSON: %w; send one JSON object", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the JSON object; send only the object")
	}
	return v, nil
}

// plain returns v with numbers as float64, which the validator needs.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64() // out of range: infinite, which the validator refuses
		return max(-math.MaxFloat64, min(f, math.MaxFloat64))
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plain(v[i])
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for k := range v {
			object[k] = plain(v[k])
		}
		return object
	}
	return v
}

// innermost returns the validator's message without the list of schemas before the last
// one.
func innermost(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "validating "); i > 0 {
		text = text[i+len("validating "):]
	}
	return strings.ReplaceAll(text, "/properties/", "/")
}

// missing returns the errors for required arguments that args lacks.
func missing(s *jsonschema.Schema, path string, args map[string]any) []string {
	var problems []string
	for _, name := range s.Required {
		if _, ok := args[name]; ok {
			continue
		}
		text := fmt.Sprintf("argument %q is missing", join(path, name))
		if p := s.Properties[name]; p != nil {
			text += "; want " + wanted(p)
			if p.Description != "" {
				text += ": " + p.Description
			}
		}
		problems = append(problems, text)
	}
	return problems
}

// unknown returns the error for an argument that is not in the schema.
func unknown(s *jsonschema.Schema, path, name string) string {
	names := slices.Sorted(maps.Keys(s.Properties))
	text := fmt.Sprintf("there is no argument %q", join(path, name))
	if len(name) <= maxSuggestLen {
		text += suggest.Hint(name, names)
	}
	if len(names) > 0 {
		text += "; known are: " + strings.Join(names, ", ")
	}
	return text
}

// join returns the path of the member name of the object at path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// describe returns v for an error message, cut if it is long.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "the string " + encode(plaintext.Clip(v, 60))
	}
	return encode(v)
}

// encode returns v as JSON.
func encode(v any) string {
	text, err := plainjson.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
