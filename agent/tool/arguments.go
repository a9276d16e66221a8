package tool

import (
	"bytes"
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
)

// maxSuggestLen bounds names that are compared with known ones, in bytes.
const maxSuggestLen = 100

// CheckArguments returns arguments that were written for a tool as an object that fits its schema.
// Mistakes that can be corrected without a guess are corrected. The error tells the author what is
// wrong.
func CheckArguments(schema *jsonschema.Resolved, written string) (json.RawMessage, error) {
	return checkArguments(schema, nil, written)
}

// checkArguments is [CheckArguments] for a tool that knows some arguments by other names, too.
func checkArguments(
	schema *jsonschema.Resolved, aliases map[string]string, written string,
) (json.RawMessage, error) {
	args, err := readObject(schema.Schema(), written)
	if err != nil {
		return nil, err
	}
	for alias, name := range aliases {
		v, ok := args[alias]
		if _, both := args[name]; ok && !both { // both are refused: which one is meant is a guess
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

// readObject finds the object in what a model wrote: it may be missing, stand
// within a code fence, within a JSON string or under the key "arguments".
func readObject(s *jsonschema.Schema, written string) (map[string]any, error) {
	for range 4 { // as deep as models wrap it
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

// readJSON returns the one JSON value in s, with numbers as they are written,
// or nil if there is none.
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
		return nil, errors.New("the arguments go on after the JSON object; send only the object")
	}
	return v, nil
}

// plain returns v with numbers as float64, the form that the validator knows.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64() // infinite if out of range, which the validator can't take
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

// innermost returns the validator's message without the schemas it went through, but
// for the last one.
func innermost(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "validating "); i > 0 {
		text = text[i+len("validating "):]
	}
	return strings.ReplaceAll(text, "/properties/", "/")
}

// missing returns the problems of required arguments that args does not have.
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

// unknown returns the problem of an argument that the schema does not know.
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

// describe returns v for an error, cut if it is long.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		const most = 60
		if len(v) > most {
			v = strings.ToValidUTF8(v[:most], "") + "…"
		}
		return "the string " + encode(v)
	}
	return encode(v)
}

// encode returns v as JSON.
func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
