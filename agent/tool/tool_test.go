package tool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"gateway/agent/llm"
	"gateway/bus"
)

// testArgs has a field of each type that tools use.
type testArgs struct {
	Path    string   `json:"path" jsonschema:"what to read"`
	Limit   int      `json:"limit,omitempty" jsonschema:"most lines"`
	Ratio   *float64 `json:"ratio,omitempty"`
	Deep    bool     `json:"deep,omitempty"`
	Tags    []string `json:"tags,omitempty"`
	Numbers []int    `json:"numbers,omitempty"`
	Inner   *struct {
		Name string `json:"name"`
		Size int    `json:"size,omitempty"`
	} `json:"inner,omitempty"`
}

// echo returns a tool whose result contains its arguments.
func echo(name string) Tool {
	return New(name, "Gives back its arguments.", Pure,
		func(_ context.Context, _ Call, args testArgs) (Result, error) {
			b, err := json.Marshal(args)
			return Result{Text: string(b)}, err
		})
}

func newRegistry(t *testing.T, tools ...Tool) *Registry {
	t.Helper()
	r, err := NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSchema(t *testing.T) {
	const want = `{"type":"object","properties":{` +
		`"path":{"type":"string","description":"what to read"},` +
		`"limit":{"type":"integer","description":"most lines"},` +
		`"ratio":{"type":"number"},"deep":{"type":"boolean"},` +
		`"tags":{"type":"array","items":{"type":"string"}},` +
		`"numbers":{"type":"array","items":{"type":"integer"}},` +
		`"inner":{"type":"object","properties":{"name":{"type":"string"},"size":{"type":"integer"}},` +
		`"required":["name"]}},` +
		`"required":["path"]}`
	for range 20 {
		if got := string(echo("e").Schema); got != want {
			t.Fatalf("schema is\n%s\nwant\n%s", got, want)
		}
	}
}

func TestNewPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New accepted arguments that have no JSON form")
		}
	}()
	New("bad", "d", Pure, func(context.Context, Call, struct{ C chan int }) (Result, error) {
		return Result{}, nil
	})
}

func TestRun(t *testing.T) {
	r := newRegistry(t, echo("echo"))
	args, err := r.Arguments("echo", `{"path":"a","limit":"7","inner":{"name":5}}`)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := r.Lookup("echo")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tool.Run(t.Context(), Call{Args: args})
	if want := `{"path":"a","limit":7,"inner":{"name":"5"}}`; err != nil || got.Text != want {
		t.Errorf("Run = %q, %v; want %q", got.Text, err, want)
	}
}

func TestRunTooLarge(t *testing.T) {
	r := newRegistry(t, echo("echo"))
	args, err := r.Arguments("echo", `{"path":"a","limit":123456789012345678901}`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = echo("echo").Run(t.Context(), Call{Args: args})
	want := `argument "limit": number 123456789012345678901 does not fit int`
	if err == nil || err.Error() != want {
		t.Errorf("Run = %v, want %s", err, want)
	}
}

func TestSpecs(t *testing.T) {
	a, b, c := echo("a"), echo("b"), echo("c")
	var want string
	for _, tools := range [][]Tool{{a, b, c}, {c, a, b}, {b, c, a}} {
		var got strings.Builder
		for _, s := range newRegistry(t, tools...).Specs() {
			got.WriteString(s.Name + " " + s.Description + " " + string(s.Schema) + "\n")
		}
		if want == "" {
			want = got.String()
		}
		if got.String() != want || !strings.HasPrefix(want, "a ") {
			t.Errorf("specs are\n%swant\n%s", got.String(), want)
		}
	}
}

func TestRegistryRefuses(t *testing.T) {
	with := func(change func(*Tool)) Tool {
		tool := echo("x")
		change(&tool)
		return tool
	}
	tests := []struct {
		name  string
		tools []Tool
		want  string
	}{
		{"twice", []Tool{echo("x"), echo("x")}, `tool: two tools have the name "x"`},
		{"name", []Tool{echo("a b")},
			`tool: "a b": want a name of at most 64 letters, digits, "_" or "-"`},
		{"no description", []Tool{with(func(t *Tool) { t.Description = "" })},
			`tool: "x": want a description`},
		{"no run", []Tool{with(func(t *Tool) { t.Run = nil })}, `tool: "x": want a Run function`},
		{"effect", []Tool{with(func(t *Tool) { t.Effect = 7 })}, `tool: "x": there is no effect 7`},
		{"array", []Tool{with(func(t *Tool) { t.Schema = json.RawMessage(`{"type":"array"}`) })},
			`tool: "x": schema: want "type": "object"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := NewRegistry(tt.tools...); err == nil || err.Error() != tt.want {
				t.Errorf("NewRegistry = %v, want %s", err, tt.want)
			}
		})
	}
	for _, schema := range []string{``, `{`, `{"type":"object","properties":{"a":{"$ref":"#/x"}}}`} {
		bad := with(func(t *Tool) { t.Schema = json.RawMessage(schema) })
		if _, err := NewRegistry(bad); err == nil {
			t.Errorf("NewRegistry accepted the schema %q", schema)
		}
	}
}

func TestUnknownTool(t *testing.T) {
	r := newRegistry(t, echo("list_dir"), echo("read_file"))
	const tools = "; the tools are: list_dir, read_file"
	for name, want := range map[string]string{
		"readfile":  `there is no tool "readfile"; did you mean "read_file"?` + tools,
		"Read_File": `there is no tool "Read_File"; did you mean "read_file"?` + tools,
		"browse":    `there is no tool "browse"` + tools,
	} {
		if _, err := r.Lookup(name); err == nil || err.Error() != want {
			t.Errorf("Lookup(%q) = %v, want %s", name, err, want)
		}
		if _, err := r.Arguments(name, "{}"); err == nil || err.Error() != want {
			t.Errorf("Arguments(%q) = %v, want %s", name, err, want)
		}
	}
	if _, err := newRegistry(t).Lookup("x"); err == nil {
		t.Error("Lookup in an empty registry succeeded")
	}
}

// Set replaces the tools of one source and nothing else. A list of tools that was read before
// does not change.
func TestSet(t *testing.T) {
	r := newRegistry(t, echo("own"))
	before := r.For("")
	join := func(specs []llm.ToolSpec) (list string) {
		for _, s := range specs {
			list += s.Name + " "
		}
		return list
	}
	names := func(r *Registry) string { return join(r.Specs()) }
	for _, step := range []struct {
		source string
		tools  []Tool
		want   string
		err    string
	}{
		{"a", []Tool{echo("z"), echo("b")}, "b own z ", ""},
		{"c", []Tool{echo("m"), echo("b"), echo("own")}, "b m own z ", "two tools"},
		{"a", []Tool{echo("y")}, "m own y ", ""},
		{"c", nil, "own y ", ""},
	} {
		specs, had := r.Specs(), names(r)
		err := r.Set(step.source, step.tools)
		if (err != nil) != (step.err != "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("Set(%s) = %v, want an error with %q", step.source, err, step.err)
		}
		if got := names(r); got != step.want {
			t.Errorf("after Set(%s) the tools are %q, want %q", step.source, got, step.want)
		}
		if got := names(r.For(bus.User)); got != step.want {
			t.Errorf("after Set(%s) a user's tools are %q, want %q", step.source, got, step.want)
		}
		if got := join(specs); got != had {
			t.Errorf("by Set(%s) an earlier list has become %q, want %q", step.source, got, had)
		}
	}
	if got := names(before); got != "own " {
		t.Errorf("an earlier registry has become %q", got)
	}
}

// Each role has its own tools, in any order of the calls. An unknown role has the tools that are
// for everybody.
func TestFor(t *testing.T) {
	admins, users := echo("admins"), echo("users")
	admins.MinRole, users.MinRole = bus.Admin, bus.User
	r := newRegistry(t, admins, users, echo("all"))
	for range 2 { // the second time, the list is cached
		for role, want := range map[bus.Role]int{
			bus.Owner: 3, bus.Admin: 3, bus.User: 2, bus.Guest: 1, "": 1, "nobody": 1,
		} {
			if got := len(r.For(role).Specs()); got != want {
				t.Errorf("the role %q has %d tools, want %d", role, got, want)
			}
		}
	}
	if first := r.For(bus.User); r.For(bus.User) != first {
		t.Error("the tools of a role are chosen anew though none has changed")
	}
}

// The schema of a tool without arguments has properties, because OpenAI refuses an object without
// them.
func TestToolWithoutArguments(t *testing.T) {
	r := newRegistry(t, New("none", "Needs nothing.", Pure,
		func(context.Context, Call, struct{}) (Result, error) { return Result{}, nil }))
	const want = `{"properties":{},"type":"object"}`
	if got := string(r.Specs()[0].Schema); got != want {
		t.Errorf("schema is %s, want %s", got, want)
	}
}
