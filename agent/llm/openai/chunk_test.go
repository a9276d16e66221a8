package openai

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzObjectFields checks that objectFields finds the same fields in a valid object as the
// standard library.
func FuzzObjectFields(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Add(` { "a" : "b\"}" , "c" : [ {"d":[]} , 2 ], "e":null,"f":true , "g": -1.5e3 } `)
	f.Add(`{"\u0061\n":"\\","":{}}`)
	f.Fuzz(func(t *testing.T, in string) {
		var want map[string]json.RawMessage
		if !utf8.ValidString(in) || json.Unmarshal([]byte(in), &want) != nil || want == nil {
			return // objectFields keeps bytes that are not UTF-8
		}
		got := maps.Collect(objectFields([]byte(in)))
		if len(got) == 0 && len(want) == 0 {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestTextOf(t *testing.T) {
	for raw, want := range map[string]text{
		`"plain"`: "plain", `"a\"b\u00e9\n"`: "a\"bé\n", `null`: "", ``: "", `""`: "",
		`{"a":1}`: `{"a":1}`, `7`: "7",
		`[{"type":"text","text":"a"},{"type":"image"},{"text":"b"}]`: "ab",
	} {
		if got := textOf(json.RawMessage(raw)); got != want {
			t.Errorf("textOf(%s) = %q, want %q", raw, got, want)
		}
	}
}
