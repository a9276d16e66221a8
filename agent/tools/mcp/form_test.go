package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gateway/agent/tool"
)

func TestFields(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ schema, fit, unfit string }{
		{`{"type":"string","minLength":2,"maxLength":3}`, "ab abc 日本", "a abcd"},
		{`{"type":"string","pattern":"^[a-z]+$"}`, "abc", "ABC 1"},
		{`{"type":"string","format":"email"}`, "a@b.example", "a Ann<a@b.example>"},
		{`{"type":"string","format":"uri"}`, "https://x.example/y", "x/y"},
		{`{"type":"string","format":"date"}`, "2026-12-31", "2026-13-31 31.12.2026"},
		{`{"type":"string","format":"date-time"}`, "2026-12-31T18:00:00Z", "2026-12-31"},
		{`{"type":"integer","minimum":-3,"exclusiveMaximum":5}`, "-3 4",
			"-4 5 1.5 1e2 x 99999999999999999999"},
		{`{"type":"number","maximum":1.5}`, "1.5 -2 1e-3", "1.6 NaN -Inf x"},
		{`{"type":"boolean"}`, "yes No true 2 1.", "3 0 perhaps"},
		{`{"type":"string","enum":["a","b"],"enumNames":["Ann","Bob"]}`, "a ann 2", "c 3 0 -1"},
		{`{"type":"array","maxItems":2,"items":{"type":"string","enum":["a","b","c"]}}`,
			"a a,b c,c,c 1,3", "a,b,c d ,"},
	} {
		f, err := (request{Schema: json.RawMessage(`{"properties":{"x":` + tt.schema + `}}`)}).fields()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Fields(tt.fit) {
			if v, ok := f[0].value(text); !ok {
				t.Errorf("%s: %q does not fit: %v", tt.schema, text, v)
			}
		}
		for _, text := range strings.Fields(tt.unfit) {
			if v, ok := f[0].value(text); ok {
				t.Errorf("%s: %q fits as %v", tt.schema, text, v)
			}
		}
		if strings.Contains(f[0].ask(0, 1), "%!") {
			t.Errorf("%s: asks %q", tt.schema, f[0].ask(0, 1))
		}
	}
}

// Each button stands for its own value, also if labels are equal except for their case or their
// end, or if a value is a keyword. A person who writes a keyword means the keyword.
func TestButtonsOfForm(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long name ", 5)
	for _, tt := range []struct{ schema, keyword, want string }{
		{schema: `{"enum":["a","A","b"]}`}, {schema: `{"enum":["","[x]","(x)"]}`},
		{schema: `{"enum":["` + long + `x","` + long + `y","c"]}`},
		{schema: `{"oneOf":[{"const":"s","title":"Same"},{"const":"t","title":"Same"}]}`},
		{schema: `{"enum":["default","light","dark"],"default":"dark"}`, keyword: "default",
			want: `accept {"x":"dark"}`},
		{schema: `{"enum":["overwrite","Skip"]}`, keyword: "skip", want: `accept {}`},
		{schema: `{"enum":["accept","decline"]}`, keyword: "Decline", want: "decline null"},
		{schema: `{"enum":["cancel","go on"]}`, keyword: "cancel", want: "cancel null"},
		{schema: `{"enum":["3","2","1"]}`, keyword: "1", want: `accept {"x":"1"}`},
	} {
		r := request{Schema: json.RawMessage(`{"properties":{"x":` + tt.schema + `}}`)}
		answer := func(text string) string {
			q := &elicitation{Requests: []request{r}}
			if err := q.addAnswer(&tool.Reply{Answered: true, Text: text}); err != nil {
				t.Fatal(err)
			}
			if q.Answers[""] == nil {
				return "not valid"
			}
			content, err := json.Marshal(q.Answers[""].Content)
			if err != nil {
				t.Fatal(err)
			}
			return q.Answers[""].Action + " " + string(content)
		}
		w, err := (&elicitation{Requests: []request{r}}).wait("x", "y", false)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := r.fields()
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range fields[0].values {
			want := fmt.Sprintf(`accept {"x":%q}`, v)
			if got := answer(w.Options[i]); got != want {
				t.Errorf("%s: the button %q of %v gives %s, want %s", tt.schema, w.Options[i], v, got, want)
			}
		}
		if tt.keyword == "" {
			continue
		}
		if got := answer(tt.keyword); got != tt.want {
			t.Errorf("%s: %q gives %s, want %s", tt.schema, tt.keyword, got, tt.want)
		}
	}
}
