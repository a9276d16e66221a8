package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"gateway/agent/llm"
	"gateway/agent/tool"
)

func TestRepairSchema(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, want string }{
		{"none", `null`, `{"properties":{},"type":"object"}`},
		{"true", `true`, `{"properties":{},"type":"object"}`},
		{"no type", `{"properties":{"a":{"type":"string"}}}`,
			`{"properties":{"a":{"type":"string"}},"type":"object"}`},
		{"nulls", `{"type":"object","properties":null,"required":null,"description":null}`,
			`{"properties":{},"type":"object"}`},
		{"inner nulls", `{"type":"object","properties":{"a":null,"required":{"enum":null}}}`,
			`{"properties":{"a":{},"required":{}},"type":"object"}`},
		{"booleans", `{"type":"object","properties":{"a":true,"b":{"additionalProperties":true}},
			"additionalProperties":false}`, `{"additionalProperties":false,` +
			`"properties":{"a":{},"b":{"additionalProperties":true}},"type":"object"}`},
		{"types", `{"type":["object","null"]}`, `{"properties":{},"type":"object"}`},
		{"draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","$id":"x","type":"object",
			"properties":{"a":{"$ref":"#/definitions/A%3Cb%3E"}},
			"definitions":{"A<b>":{"type":"string"}}}`,
			`{"definitions":{"A\u003cb\u003e":{"type":"string"}},` +
				`"properties":{"a":{"$ref":"#/definitions/A%3Cb%3E"}},"type":"object"}`},
		{"draft 4", `{"type":"object","properties":{"n":{"type":"number","minimum":1,
			"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":false}}}`,
			`{"properties":{"n":{"exclusiveMinimum":1,"maximum":3,"type":"number"}},"type":"object"}`},
		{"capitals", `{"type":"object","AnyOf":[{"$ref":"#"}],"properties":{"AnyOf":{"Type":"null",
			"Dependencies":{"a":{"$ref":"#/properties/AnyOf"}},"allOf":[{"$DynamicRef":"#a"}]}}}`,
			`{"properties":{"AnyOf":{"allOf":[{}]}},"type":"object"}`},
		{"draft 3", `{"type":"object","properties":{"n":{"type":"any","required":true}}}`,
			`{"properties":{"n":{}},"type":"object"}`},
		{"root reference", `{"$ref":"#/definitions/A","definitions":{"A":{"type":"object",
			"properties":{"b":{"type":"string"}},"required":["b"]}}}`,
			`{"definitions":{"A":{"properties":{"b":{"type":"string"}},"required":["b"],` +
				`"type":"object"}},"properties":{"b":{"type":"string"}},"required":["b"],"type":"object"}`},
		{"alternatives", `{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]},
			{"properties":{"a":{"type":"null"},"b":{"type":"string"}},"required":["b"]}],
			"allOf":[{"properties":{"c":{}},"required":["c"]}]}`,
			`{"properties":{"a":{},"b":{"type":"string"},"c":{}},"required":["c"],"type":"object"}`},
		{"no grammar", `{"type":"object","properties":{"a":{"pattern":"^(?!x)"},
			"b":{"type":"string","pattern":"\\S","minLength":1,"maxLength":10000},
			"pattern":{"type":"array","items":{"pattern":"^x$"},"minItems":1,"maxItems":100}}}`,
			`{"properties":{"a":{},"b":{"type":"string"},"pattern":{"items":{},"type":"array"}},` +
				`"type":"object"}`},
		{"description", `{"type":"object","properties":{"a":{"description":"a\n\n[end of x]\u202e<b>"}}}`,
			`{"properties":{"a":{"description":"a (end of x)‹b›"}},"type":"object"}`},
		{"recursive", `{"type":"object","properties":{"child":{"$ref":"#"}}}`,
			`{"properties":{"child":{"$ref":"#"}},"type":"object"}`},
		{"tuple", `{"type":"object","properties":{"a":{"type":"array","items":[{"type":"string"}]}}}`,
			`{"properties":{"a":{"items":{},"prefixItems":[{"type":"string"}],"type":"array"}},` +
				`"type":"object"}`},
		{"longer tuple", `{"type":"object","properties":{"a":{"type":"array",
			"items":[{"type":"any"}],"additionalItems":{"type":"integer"}}}}`,
			`{"properties":{"a":{"items":{"type":"integer"},"prefixItems":[{}],"type":"array"}},` +
				`"type":"object"}`},
		{"closed tuple", `{"type":"object","properties":{"a":{"type":"array","items":[{}],
			"additionalItems":false}}}`,
			`{"properties":{"a":{"items":false,"prefixItems":[{}],"type":"array"}},"type":"object"}`},
		{"lists of anything", `{"type":"object","properties":{"a":{"type":"array"},
			"b":{"type":["null","array"],"items":[]},"c":{"type":"array","items":{"type":"array"}}}}`,
			`{"properties":{"a":{"items":{},"type":"array"},"b":{"items":{},"type":["null","array"]},` +
				`"c":{"items":{"items":{},"type":"array"},"type":"array"}},"type":"object"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var v any
			if err := json.Unmarshal([]byte(tt.schema), &v); err != nil {
				t.Fatal(err)
			}
			got, err := repairSchema(v)
			if err != nil || string(got) != tt.want {
				t.Errorf("mend = %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

// doubling returns a small schema that checks every value 2^n times.
func doubling(n int) string {
	defs := `"d0":{"type":"string"}`
	for i := range n {
		defs += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`,
			i+1, i, i)
	}
	return fmt.Sprintf(`{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"}},"$defs":{%s}}`,
		n, defs)
}

func TestRepairSchemaRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, want string }{
		{"false", `false`, "accepts no arguments"},
		{"number", `5`, "not an object"},
		{"list", `[]`, "not an object"},
		{"array", `{"type":"array"}`, "not that of an object"},
		{"wrong type", `{"type":"object","properties":{"a":{"type":"strng"}}}`, `the type "strng"`},
		{"wrong kind", `{"type":"object","properties":{"a":{"minimum":"x"}}}`,
			"its schema is not valid"},
		{"wrong list", `{"type":"object","required":"a"}`, "its schema is not valid"},
		{"missing", `{"type":"object","properties":{"a":{"$ref":"#/definitions/no"}}}`, "not there"},
		{"elsewhere", `{"type":"object","properties":{"a":{"$ref":"http://169.254.169.254/x"}}}`,
			"not there"},
		{"file", `{"$ref":"file:///etc/passwd"}`, "not there"},
		{"circle", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},
			"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, "in a circle"},
		{"own circle", `{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`, "in a circle"},
		{"root circle", `{"$ref":"#/definitions/A","definitions":{"A":{"$ref":"#/definitions/A"}}}`,
			"in a circle"},
		{"multiplies", doubling(40), "multiplies"},
		{"deep", `{"type":"object","properties":{"a":` + strings.Repeat(`{"not":`, 100) + `{}` +
			strings.Repeat(`}`, 100) + `}}`, "too deep"},
		{"dynamic", `{"type":"object","properties":{"a":{"$dynamicRef":"#a"}}}`, "not supported"},
		{"huge", `{"type":"object","properties":{"a":{"enum":["` + strings.Repeat("x", 40_000) +
			`"]}}}`, "more than 32768"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var v any
			if err := json.Unmarshal([]byte(tt.schema), &v); err != nil {
				t.Fatal(err)
			}
			got, err := repairSchema(v)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("mend = %s, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
}

// FuzzMend checks that the registry accepts a repaired schema, that the schema needs no further
// repair, and that checking arguments against it ends.
func FuzzMend(f *testing.F) {
	for _, s := range []string{`null`, `{"$ref":"#/a","a":{"type":"object"}}`, doubling(3),
		`{"properties":{"a":{"$ref":"#"}},"anyOf":[{"$ref":"#/properties/a"}]}`,
		`{"properties":{"a":{"$ref":"#"}},"AnyOf":[{"$ref":"#/properties/a"}]}`,
		`{"properties":{"a":{"Dependencies":{"a":{"$ref":"#/properties/a"}}}}}`,
		`{"properties":{"a":{"$DynamicRef":"#a","$Anchor":"a"}}}`,
		`{"items":[{}],"properties":{"a":{"items":null,"not":{"$ref":"#/properties/a/items"}}}}`,
		`{"allOf":[{"properties":{"x":{"$ref":"#/allOf/0"}}}]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		var v any
		if json.Unmarshal([]byte(schema), &v) != nil {
			return
		}
		got, err := repairSchema(v)
		if err != nil {
			if !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\n[]") {
				t.Errorf("the error is not tame: %q", err)
			}
			return
		}
		s := newServer(Server{Name: "s"}, &Options{Now: time.Now}, []string{"s"})
		reg, err := tool.NewRegistry(s.toolset.tool("x", "", "d", got, definition{Name: "x"}))
		if err != nil {
			t.Fatalf("the registry refuses %s: %v", got, err)
		}
		_, _ = reg.Arguments("x", `{"a":{"a":{"a":[1,"x",null]}}}`) // must return
		again, err := repairSchema(json.RawMessage(got))
		if err != nil || string(again) != string(got) {
			t.Errorf("mended again: %s, %v\nwant %s", again, err, got)
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 80)
	tests := []struct {
		server string
		others []string
		tools  []string
		want   []string // "#" at the end stands for "_" and the mark
	}{
		{"s", nil, []string{"a", "b-c"}, []string{"mcp_s_a", "mcp_s_b-c"}},
		{"s", nil, []string{"a.b", "a/c"}, []string{"mcp_s_a_b", "mcp_s_a_c"}},
		{"s", nil, []string{"a.b", "a/b"}, []string{"mcp_s_a_b#", "mcp_s_a_b#"}},
		{"s", nil, []string{"a.b", "a_b"}, []string{"mcp_s_a_b#", "mcp_s_a_b"}},
		{"s", nil, []string{"ä", "日本"}, []string{"mcp_s__", "mcp_s___"}},
		{"s", nil, []string{long, long + "y"}, []string{"mcp_s_" + long[:49] + "#",
			"mcp_s_" + long[:49] + "#"}},
		{"s", nil, []string{"resources", "prompts"}, []string{"mcp_s_resources#", "mcp_s_prompts#"}},
		{"a", []string{"a_b"}, []string{"b_c", "b", "bc"}, []string{"mcp_a_?_b_c", "mcp_a_b",
			"mcp_a_bc"}},
		{"a_b", []string{"a"}, []string{"c"}, []string{"mcp_a_b_c"}},
	}
	for _, tt := range tests {
		s := newServer(Server{Name: tt.server}, &Options{Now: time.Now},
			append(tt.others, tt.server))
		var tools []definition
		for _, name := range tt.tools {
			tools = append(tools, definition{Name: name})
		}
		got := s.toolset.names(tools)
		for i, want := range tt.want {
			ok := got[i] == want
			if base, cut := strings.CutSuffix(want, "#"); cut {
				ok = len(got[i]) == len(base)+9 && strings.HasPrefix(got[i], base+"_")
			} else if before, after, cut := strings.Cut(want, "?"); cut {
				ok = strings.HasPrefix(got[i], before) && strings.HasSuffix(got[i], after) &&
					len(got[i]) == len(want)+7
			}
			if !ok || len(got[i]) > maxName {
				t.Errorf("%s: tool %q is named %q, want %q", tt.server, tt.tools[i], got[i], want)
			}
		}
		slices.Reverse(tools)
		reversed := s.toolset.names(tools)
		slices.Reverse(reversed)
		if !slices.Equal(got, reversed) {
			t.Errorf("the names depend on the order: %q and %q", got, reversed)
		}
	}
}

// FuzzNames checks that names are valid and different, also from the names of other servers'
// tools.
func FuzzNames(f *testing.F) {
	f.Add("a", "a_b", "b_c", "c", "b/c")
	f.Add("a", "b", "resources", "x y", "x.y")
	f.Add("a", "a_"+"1", strings.Repeat("1_", 40), strings.Repeat("1_", 41), "")
	f.Fuzz(func(t *testing.T, one, other, x, y, z string) {
		if one == "" || other == "" || one == other || llm.PlainName(one+other) != one+other {
			return
		}
		seen := make(map[string]string)
		for _, name := range []string{one, other} {
			s := newServer(Server{Name: name}, &Options{Now: time.Now}, []string{one, other})
			tools := []definition{{Name: x}, {Name: y}, {Name: z}}
			for i, got := range s.toolset.names(tools) {
				key := name + "\x00" + tools[i].Name
				if got == "" {
					continue
				}
				if owner, ok := seen[got]; ok && owner != key {
					t.Errorf("%q and %q are both %q", owner, key, got)
				}
				if seen[got] = key; !fits(got) || !strings.HasPrefix(got, s.toolset.prefix) {
					t.Errorf("%q is named %q", key, got)
				}
			}
		}
	})
}

func TestDefine(t *testing.T) {
	t.Parallel()
	s := newServer(Server{Name: "s", Allow: []string{"t*", "bad*", "big*", "prompts"}},
		&Options{Now: time.Now}, []string{"s"})
	var c catalog
	for i := range 3_000 {
		c.Tools = append(c.Tools, definition{Name: fmt.Sprintf("t%04d", 2_999-i)})
	}
	c.Tools = append(c.Tools, definition{Name: "bad", Schema: 5}, definition{Name: "other"},
		definition{Name: "big", Description: strings.Repeat("wörd ", 1_000)})
	c.Prompts, c.Resources, c.More = true, true, true
	tools, refused := s.toolset.define(c)
	if len(tools) != maxTools+1 || tools[0].Name != "mcp_s_big" || tools[1].Name != "mcp_s_prompts" ||
		tools[2].Name != "mcp_s_t0000" {
		t.Errorf("%d tools, the first are %s, %s and %s", len(tools), tools[0].Name, tools[1].Name,
			tools[2].Name)
	}
	if n := utf8.RuneCountInString(tools[0].Description); n != maxDescription {
		t.Errorf("the long description has %d characters, want %d", n, maxDescription)
	}
	if !strings.Contains(tools[2].Description, "does not describe it") {
		t.Errorf("the description is %q", tools[2].Description)
	}
	if len(refused) != maxRefused+1 || refused[0] != `"bad": its schema is not an object` ||
		refused[1] != `"t0127": the server has more than 128 tools` {
		t.Errorf("refused is %q", refused)
	}
	if _, err := tool.NewRegistry(tools...); err != nil {
		t.Error(err)
	}
}

// The total size of all schemas of a server is bounded.
func TestDefineSize(t *testing.T) {
	t.Parallel()
	s := newServer(Server{Name: "s"}, &Options{Now: time.Now}, []string{"s"})
	var c catalog
	for i := range 20 {
		c.Tools = append(c.Tools, definition{Name: fmt.Sprint(i), Schema: map[string]any{
			"properties": map[string]any{"a": map[string]any{
				"enum": []any{strings.Repeat("x", 30_000)}}}}})
	}
	tools, refused := s.toolset.define(c)
	if len(tools) != 8 || len(refused) != 12 || !strings.Contains(refused[0], "262144 bytes") {
		t.Errorf("%d tools, refused %q", len(tools), refused)
	}
}

func TestTame(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain":                               "plain",
		"a\r\n\r\n---\r\nb\t\x00c":            "a --- b c",
		"[end of x] <system>":                 "(end of x) ‹system›",
		"in\u200bvis\u202eible\U000e0041\xff": "invisible",
		strings.Repeat("ä", 60):               strings.Repeat("ä", 49) + "…",
	} {
		if got := oneLine(text, 50); got != want {
			t.Errorf("tame(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzTame(f *testing.F) {
	f.Add("a\n[b]\u202e", 3)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 1 || most > 1_000 {
			return
		}
		got := oneLine(text, most)
		if utf8.RuneCountInString(got) > most || !utf8.ValidString(got) ||
			strings.ContainsAny(got, "[]<>") || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("tame(%q, %d) = %q", text, most, got)
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	cmd := []string{"x"}
	for _, tt := range []struct {
		server Server
		want   string
	}{
		{Server{Name: "a-B_9", Command: cmd}, ""},
		{Server{Name: "a", URL: "https://example.org/mcp"}, ""},
		{Server{Name: "", Command: cmd}, "want a name"},
		{Server{Name: "a.b", Command: cmd}, "want a name"},
		{Server{Name: "../x", Command: cmd}, "want a name"},
		{Server{Name: "a"}, "either a command or a URL"},
		{Server{Name: "a", Command: cmd, URL: "http://x"}, "either a command or a URL"},
		{Server{Name: "a", Command: []string{""}}, "command is empty"},
		{Server{Name: "a", URL: "file:///etc/passwd"}, "http or https"},
		{Server{Name: "a", URL: "http://x", Header: map[string]string{"a": "b\r\nc: d"}}, "header"},
		{Server{Name: "a", Command: cmd, Allow: []string{"[a"}}, "not a pattern"},
		{Server{Name: "a", Command: cmd, Timeout: -1}, "negative"},
		{Server{Name: "a", Command: cmd, MinRole: "king"}, "no role"},
	} {
		err := tt.server.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Check(%+v) = %v, want %q", tt.server, err, tt.want)
		}
	}
}
