package template

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// data is what the templates of the tests are filled with: all that JSON has, in several depths.
func data(t testing.TB, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return integers(v)
}

// integers returns v with its whole numbers as integers, and with lists that have no spare room.
func integers(v any) any {
	switch v := v.(type) {
	case float64:
		if n := int(v); float64(n) == v {
			return n
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
		return v[:len(v):len(v)]
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	}
	return v
}

// values are what each template of the corpus is filled with.
var values = []string{
	`null`, `true`, `7`, `2.5`, `"text <&>\u0000é"`, `[]`, `{}`, `[1,null,"b",[2,3],{"a":1}]`,
	`{"a":"x","b":"y","n":3,"m":-4,"f":1.5,"yes":true,"no":false,"null":null,"empty":"",
	  "list":[3,1,2],"nulls":[null,{"a":null},{"a":{"b":"deep"}}],"none":[],
	  "o":{"z":1,"y":{"b":[10,20]},"x":null},"s":"äöü 'quoted' \"twice\" a&b=c","k":"y"}`,
	`{"a":{"b":{"c":"d"}},"list":[{"a":1,"b":[1]},{"a":2},{"b":null}],"n":0,"s":"","k":2}`,
}

// corpus returns templates that use all of the language, right and wrong: those of a file, one on
// each line, and some of several lines.
func corpus(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/templates.txt")
	if err != nil {
		t.Fatal(err)
	}
	list := []string{"", " ", "a {{- 1 -}} \n b", "a\n{{- /* no */ -}}\nb\n{{.a}}\n", "{{1\n}}"}
	for line := range strings.Lines(string(text)) {
		list = append(list, strings.TrimSuffix(line, "\n"))
	}
	return list
}

// Each template of the corpus makes of all data what text/template makes of it.
func TestCorpus(t *testing.T) {
	filled, list := 0, corpus(t)
	for _, text := range list {
		for _, value := range values {
			if differ(t, text, data(t, value)) {
				filled++
			}
		}
	}
	if least := len(list) * len(values) / 4; filled < least {
		t.Errorf("%d texts were made and compared, want %d at least", filled, least)
	}
}

// What differs from text/template, and why it is left out when both are compared.
func TestDifferences(t *testing.T) {
	for _, tt := range []struct{ template, want string }{
		{`{{slice .s .from .to}}`, "bc"},
		{`{{range .bounds}}{{slice $.s .}},{{end}}`, "bcd,cd,"},
	} {
		parsed, err := Parse("t", tt.template)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		err = parsed.Execute(&got, data(t, `{"s":"abcd","from":1,"to":3,"bounds":[1,2]}`))
		if err != nil || got.String() != tt.want {
			t.Errorf("%s = %q, %v; want %q", tt.template, got.String(), err, tt.want)
		}
	}
	for _, text := range []string{`{{call .f}}`, `{{js "a"}}`, `{{"a" | js}}`} {
		if _, err := Parse("t", text); err == nil || !strings.Contains(err.Error(), "not defined") {
			t.Errorf("Parse(%s) = %v, want that the function is not defined", text, err)
		}
	}
}

// An execution ends, whatever a template does and however large the numbers are that are posted.
func TestBounds(t *testing.T) {
	for text, want := range map[string]error{
		`{{range .}}{{end}}`: errSteps,
		`{{range .}}{{range $}}{{if false}}{{end}}{{end}}{{end}}`:   errSteps,
		`{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`: errDepth,
		`{{define "a"}}{{template "b"}}{{end}}{{define "b"}}{{template "a"}}{{end}}` +
			`{{template "a"}}`: errDepth,
		`{{range .}}{{.}}{{end}}`: errFull,
	} {
		parsed, err := Parse("t", text)
		if err != nil {
			t.Fatal(err)
		}
		if err := parsed.Execute(&bounded{left: 1 << 10}, 1<<31-1); !errors.Is(err, want) {
			t.Errorf("Execute(%s) = %v, want %v", text, err, want)
		}
	}
	list := make([]any, 2000)
	for i := range list {
		list[i] = strings.Repeat("x", 50)
	}
	for _, text := range []string{ // that become too long, or are made too often
		`{{$s := "x"}}{{range slice . 0 26}}{{$s = print $s $s}}{{end}}`,
		`{{$s := ""}}{{range .}}{{range $}}{{$s = print $s "x"}}{{end}}{{end}}`,
		`{{range .}}{{$s := limit 1 $}}{{end}}`,
		`{{range .}}{{$n := len (json $)}}{{end}}`,
	} {
		parsed, err := Parse("t", text)
		if err != nil {
			t.Fatal(err)
		}
		if err := parsed.Execute(&bounded{}, list); !errors.Is(err, errSteps) {
			t.Errorf("Execute(%s) = %v, want %v", text, err, errSteps)
		}
	}
	if !differ(t, `{{define "a"}}{{if .}}({{template "a" .list}}){{end}}{{end}}{{template "a" .}}`,
		map[string]any{"list": map[string]any{"list": nil}}) {
		t.Error("templates in templates can't be compared")
	}
}

// Errors say where in the template, and what is wrong, in the words of JSON.
func TestErrors(t *testing.T) {
	for _, tt := range []struct{ template, want string }{
		{"a\n {{.list.x}}", "template: t:2:8: at <.list.x>: a list has no field x"},
		{`{{len 5}}`, "template: t:1:2: at <len>: len: an integer has no length"},
		{`{{.a.b}}`, "template: t:1:4: at <.a.b>: " +
			"there is nothing to take the field b of: ask with if or with"},
		{`{{lt 1 "a"}}`, "template: t:1:2: at <lt>: lt: can't compare an integer with a text"},
		{`{{template "no"}}`, "template: t:1:11: at <{{template \"no\"}}>: " +
			`there is no template "no"`},
	} {
		parsed, err := Parse("t", tt.template)
		if err != nil {
			t.Fatal(err)
		}
		err = parsed.Execute(&bounded{left: 99}, data(t, `{"list":[]}`))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s fails with %v, want %s", tt.template, err, tt.want)
		}
	}
}

// FuzzTemplate compares what anybody may write with what text/template makes of it.
func FuzzTemplate(f *testing.F) {
	for _, text := range corpus(f) {
		f.Add(text, values[len(values)-2])
	}
	for _, value := range values {
		f.Add(`{{range $k, $v := .}}{{$k}}{{$v}}{{end}}`, value)
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		var v any
		if len(text) > 1<<10 || json.Unmarshal([]byte(value), &v) != nil {
			return
		}
		differ(t, text, integers(v))
	})
}
