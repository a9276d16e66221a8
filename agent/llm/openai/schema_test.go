package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gateway/agent/llm"
)

// Gemini and Kimi refuse every request with a tool whose schema is not plain. See
// https://github.com/sipeed/picoclaw/issues/2668, https://github.com/Kilo-Org/kilocode/issues/11950
// and https://github.com/MoonshotAI/kimi-cli/issues/1595.
func TestPlainSchema(t *testing.T) {
	// Each schema is that of the property a.
	tests := []struct{ name, schema, want string }{
		{"plain", `{"type":"string","description":"d","enum":["x","y"]}`,
			`{"description":"d","enum":["x","y"],"type":"string"}`},
		{"list of types", `{"type":["string","null"],"description":"d"}`,
			`{"description":"d","type":"string"}`},
		{"several types", `{"type":["string","number","null"],"description":"d"}`,
			`{"anyOf":[{"type":"string"},{"type":"number"}],"description":"d"}`},
		{"optional", `{"anyOf":[{"type":"integer","minimum":1},{"type":"null"}],"default":null,
			"description":"d"}`, `{"description":"d","type":"integer"}`},
		{"reference", `{"$ref":"#/$defs/P","description":"where"}`,
			`{"description":"where","properties":{"x":{"type":"number"}},"required":["x"],` +
				`"type":"object"}`},
		{"reference into a list", `{"$ref":"#/$defs/U/anyOf/1"}`, `{"type":"integer"}`},
		{"reference in allOf", `{"allOf":[{"$ref":"#/$defs/P"},{"properties":{"y":{"type":"number"}}}]}`,
			`{"properties":{"x":{"type":"number"},"y":{"type":"number"}},"required":["x"],` +
				`"type":"object"}`},
		{"circle", `{"$ref":"#/$defs/T"}`, `{"properties":{"child":{"type":"object"},` +
			`"list":{"items":{"type":"object"},"type":"array"}},"type":"object"}`},
		{"alternative objects", `{"oneOf":[{"$ref":"#/$defs/P"},{"type":"object",
			"properties":{"z":{"const":"k"}},"required":["z"]}]}`,
			`{"properties":{"x":{"type":"number"},"z":{"enum":["k"],"type":"string"}},` +
				`"type":"object"}`},
		{"alternative types", `{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},
			{"type":"string","enum":["x"]}]}`,
			`{"anyOf":[{"type":"string"},{"items":{"type":"string"},"type":"array"}]}`},
		{"alternatives beside a type", `{"type":"object","properties":{"x":{},"y":{}},
			"anyOf":[{"required":["x"]},{"required":["y"]}]}`,
			`{"properties":{"x":{"type":"string"},"y":{"type":"string"}},"type":"object"}`},
		{"choices", `{"anyOf":[{"const":"x"},{"const":"y"}]}`, `{"enum":["x","y"],"type":"string"}`},
		{"enum of numbers", `{"enum":[10,11],"description":"d"}`,
			`{"description":"d One of 10, 11.","type":"number"}`},
		{"empty word", `{"type":"string","enum":["","x"]}`, `{"enum":["x"],"type":"string"}`},
		{"anything", `{"description":"d"}`, `{"description":"d","type":"string"}`},
		{"true", `true`, `{"type":"string"}`},
		{"tuple", `{"type":"array","prefixItems":[{"type":"number"},{"type":"number"}],"items":false}`,
			`{"items":{"type":"number"},"type":"array"}`},
		{"unknown required", `{"type":"object","required":["x"],"additionalProperties":false}`,
			`{"type":"object"}`},
		{"any keys", `{"additionalProperties":{"type":"string"}}`, `{"type":"object"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := plainSchema(json.RawMessage(`{"type":"object","properties":{"a":` + tt.schema +
				`},"required":["a"],"$defs":{"U":{"anyOf":[{"type":"string"},{"type":"integer"}]},
				"P":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]},
				"T":{"type":"object","properties":{"child":{"$ref":"#/$defs/T"},
					"list":{"type":"array","items":{"$ref":"#/$defs/T"}}}}}}`))
			want := `{"properties":{"a":` + tt.want + `},"required":["a"],"type":"object"}`
			if err != nil || string(got) != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
		})
	}
}

// A small schema whose references multiply gets a plain schema of bounded length.
func TestPlainSchemaIsBounded(t *testing.T) {
	defs := `"d0":{"type":"string"}`
	for i := range 40 {
		defs += fmt.Sprintf(`,"d%d":{"properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"anyOf":[`+
			`{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d0"}]}}}`, i+1, i, i)
	}
	got, err := plainSchema(json.RawMessage(`{"$ref":"#/$defs/d40","$defs":{` + defs + `}}`))
	if err != nil || len(got) > 100*maxPlain || !bytes.HasSuffix(got, []byte(`"type":"object"}`)) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// Only the models that need plain schemas get them.
func TestWhoGetsPlainSchemas(t *testing.T) {
	req := ask("hello")
	req.Tools = []llm.ToolSpec{timeTool, {Name: "f", Schema: json.RawMessage(
		`{"type":"object","properties":{"n":{"type":["string","null"]}}}`)}}
	for model, want := range map[string]bool{
		"https://generativelanguage.googleapis.com/v1beta/openai gemini-flash-latest": true,
		"https://openrouter.ai/api/v1 google/gemini-3-pro":                            true,
		"https://api.moonshot.ai/v1 kimi-k2.6":                                        true,
		"https://api.openai.com/v1 gpt-5.4-mini":                                      false,
	} {
		base, id, _ := strings.Cut(model, " ")
		pieces, err := New("test", id, &Options{BaseURL: base}).body(req)
		if err != nil {
			t.Fatal(err)
		}
		plain := !bytes.Contains(bytes.Join(pieces, nil), []byte(`["string","null"]`))
		if plain != want {
			t.Errorf("%s: plain %t, want %t", model, plain, want)
		}
	}
}
