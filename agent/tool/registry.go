package tool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"gateway/agent/llm"
	"gateway/bus"
)

// A Registry is a fixed set of tools. It may be used concurrently.
type Registry struct {
	tools map[string]entry
	specs []llm.ToolSpec // sorted by name
}

type entry struct {
	tool   Tool
	schema *jsonschema.Resolved
}

// toolName is what all providers accept.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// NewRegistry returns a registry of tools. It refuses a name that is used
// twice or that providers would not take, and a schema that is not one of an object.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{tools: make(map[string]entry, len(tools))}
	for _, t := range tools {
		if _, ok := r.tools[t.Name]; ok {
			return nil, fmt.Errorf("tool: two tools have the name %q", t.Name)
		}
		schema, err := validate(t)
		if err != nil {
			return nil, fmt.Errorf("tool: %q: %w", t.Name, err)
		}
		r.tools[t.Name] = entry{t, schema}
		r.specs = append(r.specs, llm.ToolSpec{
			Name: t.Name, Description: t.Description, Schema: slices.Clone(t.Schema),
		})
	}
	slices.SortFunc(r.specs, func(a, b llm.ToolSpec) int { return cmp.Compare(a.Name, b.Name) })
	return r, nil
}

// For returns the registry of those tools that somebody of a role may use.
func (r *Registry) For(role bus.Role) *Registry {
	allowed := &Registry{tools: make(map[string]entry, len(r.tools))}
	for _, spec := range r.specs {
		if e := r.tools[spec.Name]; e.tool.Least == "" || role.AtLeast(e.tool.Least) {
			allowed.tools[spec.Name] = e
			allowed.specs = append(allowed.specs, spec)
		}
	}
	return allowed
}

func validate(t Tool) (*jsonschema.Resolved, error) {
	switch {
	case !toolName.MatchString(t.Name):
		return nil, errors.New(`want a name of at most 64 letters, digits, "_" or "-"`)
	case t.Description == "":
		return nil, errors.New("want a description")
	case t.Effect < Once || t.Effect > Pure:
		return nil, fmt.Errorf("there is no %v", t.Effect)
	case t.Run == nil:
		return nil, errors.New("want a Run function")
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
	return resolved, nil
}

// Specs returns what a model is told of the tools, sorted by name: the same
// bytes each time, so that a provider's prompt cache can hold them.
func (r *Registry) Specs() []llm.ToolSpec { return slices.Clone(r.specs) }

// Lookup returns the tool with this name. The error, if there is none, is for the model.
func (r *Registry) Lookup(name string) (Tool, error) {
	e, err := r.lookup(name)
	return e.tool, err
}

// Arguments returns the arguments that a model wrote for the tool with this
// name as an object that fits the tool's schema, ready for [Call].Args. What can be
// mended without a guess is. The error is for the model.
func (r *Registry) Arguments(name, written string) (json.RawMessage, error) {
	e, err := r.lookup(name)
	if err != nil {
		return nil, err
	}
	return checkArguments(e.schema, written)
}

func (r *Registry) lookup(name string) (entry, error) {
	if e, ok := r.tools[name]; ok {
		return e, nil
	}
	if len(r.specs) == 0 {
		return entry{}, fmt.Errorf("there is no tool %q, and no other either", name)
	}
	names := make([]string, len(r.specs))
	for i, s := range r.specs {
		names[i] = s.Name
	}
	return entry{}, fmt.Errorf("there is no tool %q%s; the tools are: %s",
		name, suggest(name, names), strings.Join(names, ", "))
}

// suggest returns `; did you mean "x"?` for the known name nearest to name,
// or "" if none is near.
func suggest(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// Nearest returns which of the known names was probably meant by name, or "" if none is near.
func Nearest(name string, known []string) string {
	best, least := "", min(len(name)/2, 3)
	for _, k := range known {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
