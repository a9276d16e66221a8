package openai

import (
	"encoding/json"
	"fmt"
	"testing"

	"gateway/agent/llm"
)

// The cache returns the JSON of the given tools, even if there are more lists than it keeps.
func TestToolCache(t *testing.T) {
	var c toolCache
	spec := func(name, schema string) llm.ToolSpec {
		return llm.ToolSpec{Name: name, Description: "d", Schema: json.RawMessage(schema)}
	}
	shared := spec("a", `{"type":"object"}`)
	lists := [][]llm.ToolSpec{
		{shared}, {shared, spec("b", "")}, {spec("a", `{"type":"array"}`)}, {spec("c", "")},
	}
	for i := range 2 * maxKept {
		lists = append(lists, []llm.ToolSpec{spec(fmt.Sprint("x", i), "")})
	}
	for range 3 {
		for _, specs := range lists {
			got, err := c.encode(specs)
			if err != nil {
				t.Fatal(err)
			}
			want, err := new(toolCache).encode(specs)
			if err != nil || string(got) != string(want) {
				t.Errorf("encode(%v) = %s, %v, want %s", specs, got, err, want)
			}
		}
	}
	if len(c.kept) > maxKept {
		t.Errorf("%d lists are kept, want %d at most", len(c.kept), maxKept)
	}
}
