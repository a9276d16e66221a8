package tool

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestArguments(t *testing.T) {
	tests := []struct{ name, written, want string }{
		{"plain", `{"path":"a","limit":5}`, `{"limit":5,"path":"a"}`},
		{"string", `"{\"path\":\"a\"}"`, `{"path":"a"}`},
		{"fence", "```json\n{\"path\":\"a\"}\n```", `{"path":"a"}`},
		{"fence without language", "```\n{\"path\":\"a\"}\n```\n", `{"path":"a"}`},
		{"fence on one line", "```{\"path\":\"a\"}```", `{"path":"a"}`},
		{"wrapped", `{"arguments":{"path":"a"}}`, `{"path":"a"}`},
		{"wrapped string", `{"arguments":"{\"path\":\"a\"}"}`, `{"path":"a"}`},
		{"string to integer", `{"path":"a","limit":"5"}`, `{"limit":5,"path":"a"}`},
		{"string with fraction", `{"path":"a","limit":"5.0"}`, `{"limit":5,"path":"a"}`},
		{"fraction to integer", `{"path":"a","limit":5.0}`, `{"limit":5,"path":"a"}`},
		{"exponent to integer", `{"path":"a","limit":1e2}`, `{"limit":100,"path":"a"}`},
		{"string to number", `{"path":"a","ratio":" 1.50 "}`, `{"path":"a","ratio":1.50}`},
		{"string to boolean", `{"path":"a","deep":"true"}`, `{"deep":true,"path":"a"}`},
		{"Python to boolean", `{"path":"a","deep":"False"}`, `{"deep":false,"path":"a"}`},
		{"number to string", `{"path":5.10}`, `{"path":"5.10"}`},
		{"boolean to string", `{"path":true}`, `{"path":"true"}`},
		{"value to list", `{"path":"a","tags":"x"}`, `{"path":"a","tags":["x"]}`},
		{"number to list of strings", `{"path":"a","tags":7}`, `{"path":"a","tags":["7"]}`},
		{"text stays text", `{"path":"a","tags":"[1]"}`, `{"path":"a","tags":["[1]"]}`},
		{"text of a list", `{"path":"a","numbers":"[1,\"2\"]"}`, `{"numbers":[1,2],"path":"a"}`},
		{"elements", `{"path":"a","numbers":["1",2.0]}`, `{"numbers":[1,2],"path":"a"}`},
		{"text of an object", `{"path":"a","inner":"{\"name\":1}"}`,
			`{"inner":{"name":"1"},"path":"a"}`},
		{"null for not given", `{"path":"a","limit":null,"tags":null}`, `{"path":"a"}`},
	}
	r := newRegistry(t, echo("echo"))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.Arguments("echo", tt.written)
			if err != nil || string(got) != tt.want {
				t.Errorf("Arguments(%s) = %s, %v; want %s", tt.written, got, err, tt.want)
			}
		})
	}
}

// An argument may have a second name. If a call uses both names, it is refused because the
// meaning is unclear.
func TestAliases(t *testing.T) {
	x := echo("echo")
	x.Aliases = map[string]string{"file": "path"}
	r := newRegistry(t, x)
	if got, err := r.Arguments("echo", `{"file":"a"}`); err != nil || string(got) != `{"path":"a"}` {
		t.Errorf("by its second name the argument is %s, %v", got, err)
	}
	y := echo("later")
	y.Aliases = map[string]string{"seconds": "path=%ss"}
	r = newRegistry(t, x, y)
	if got, err := r.Arguments("later", `{"seconds":90}`); err != nil ||
		string(got) != `{"path":"90s"}` {
		t.Errorf("with its unit the argument is %s, %v", got, err)
	}
	for _, wrong := range []string{`{"seconds":"90"}`, `{"seconds":90,"path":"b"}`} {
		if got, err := r.Arguments("later", wrong); err == nil ||
			!strings.Contains(err.Error(), `there is no argument "seconds"`) {
			t.Errorf("%s is %s, %v", wrong, got, err)
		}
	}
	_, err := r.Arguments("echo", `{"file":"a","path":"b"}`)
	if err == nil || !strings.Contains(err.Error(), `there is no argument "file"`) {
		t.Errorf("both names are refused with %v", err)
	}
}

func TestNoArguments(t *testing.T) {
	optional := Tool{
		Name: "o", Description: "d", Run: echo("x").Run,
		Schema: json.RawMessage(`{"type":"object","properties":{"arguments":{"type":"integer"}}}`),
	}
	r := newRegistry(t, optional)
	for written, want := range map[string]string{
		"": "{}", "  \n": "{}", "null": "{}", "{}": "{}", `""`: "{}", "``` \n```": "{}",
		`{"arguments":"5"}`: `{"arguments":5}`, // the tool has an argument with this name
		`{"other":"5"}`:     `{"other":"5"}`,   // this schema does not forbid it
	} {
		if got, err := r.Arguments("o", written); err != nil || string(got) != want {
			t.Errorf("Arguments(%q) = %s, %v; want %s", written, got, err, want)
		}
	}
}

func TestArgumentProblems(t *testing.T) {
	const known = "; known are: deep, inner, limit, numbers, path, ratio, tags"
	tests := []struct{ name, written, want string }{
		{"missing", `{}`, `argument "path" is missing; want a string: what to read`},
		{"unknown", `{"path":"a","limt":1}`,
			`there is no argument "limt"; did you mean "limit"?` + known},
		{"no integer", `{"path":"a","limit":"many"}`,
			`argument "limit": want a whole number, not the string "many"`},
		{"fraction", `{"path":"a","limit":1.5}`, `argument "limit": want a whole number, not 1.5`},
		{"almost", `{"path":"a","limit":"5.000000000000000000001"}`,
			`argument "limit": want a whole number, not the string "5.000000000000000000001"`},
		{"hexadecimal", `{"path":"a","limit":"0x10"}`,
			`argument "limit": want a whole number, not the string "0x10"`},
		{"no boolean", `{"path":"a","deep":1}`, `argument "deep": want true or false, not 1`},
		{"no string", `{"path":["a"]}`, `argument "path": want a string, not a list`},
		{"null", `{"path":null}`, `argument "path": want a string, not null`},
		{"element", `{"path":"a","numbers":[1,"x"]}`,
			`argument "numbers[1]": want a whole number, not the string "x"`},
		{"inner", `{"path":"a","inner":{"size":"x"}}`,
			`argument "inner.size": want a whole number, not the string "x"` + "\n" +
				`argument "inner.name" is missing; want a string`},
		{"several", `{"pth":"a","deep":"maybe"}`,
			`argument "deep": want true or false, not the string "maybe"` + "\n" +
				`there is no argument "pth"; did you mean "path"?` + known + "\n" +
				`argument "path" is missing; want a string: what to read`},
		{"list", `[1]`, "the arguments must be one JSON object, not a list"},
		{"number", `5`, "the arguments must be one JSON object, not 5"},
		{"cut off", `{"path":"a`,
			"the arguments are not valid JSON: it ends too early; send one JSON object"},
		{"two", `{"path":"a"} {}`,
			"there is more text after the JSON object; send only the object"},
		{"long", `{"path":"a","limit":"` + strings.Repeat("ä", 100) + `"}`,
			`argument "limit": want a whole number, not the string "` + strings.Repeat("ä", 30) + `…"`},
	}
	r := newRegistry(t, echo("echo"))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.Arguments("echo", tt.written)
			if err == nil || err.Error() != tt.want {
				t.Errorf("Arguments = %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

// TestForeignSchema checks schemas that New did not create.
func TestForeignSchema(t *testing.T) {
	foreign := Tool{Name: "f", Description: "d", Run: echo("x").Run, Schema: json.RawMessage(`{
		"type": "object",
		"properties": {
			"unit": {"type": "string", "enum": ["c", "f"]},
			"id": {"type": ["string", "integer"]},
			"n": {"type": "integer", "maximum": 10},
			"code": {"type": "string", "pattern": "^[a-z]+$"},
			"any": {}
		}
	}`)}
	r := newRegistry(t, foreign)
	for written, want := range map[string]string{
		`{"id":5}`:          `{"id":5}`,
		`{"id":"5"}`:        `{"id":"5"}`,
		`{"unit":"c"}`:      `{"unit":"c"}`,
		`{"any":{"x":[1]}}`: `{"any":{"x":[1]}}`,
	} {
		if got, err := r.Arguments("f", written); err != nil || string(got) != want {
			t.Errorf("Arguments(%s) = %s, %v; want %s", written, got, err, want)
		}
	}
	for written, want := range map[string]string{
		`{"unit":"k"}`:  `argument "unit": want one of "c", "f", not the string "k"`,
		`{"n":"11"}`:    `the arguments do not fit: /n: maximum: 11`,
		`{"n":1e400}`:   `argument "n": want a whole number, not 1e400`,
		`{"code":"A1"}`: `the arguments do not fit: /code: pattern: "A1" does not match`,
	} {
		got, err := r.Arguments("f", written)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Arguments(%s) = %s, %v\nwant %s", written, got, err, want)
		}
	}
}

// FuzzArguments checks that Arguments never panics. The arguments that it returns fit the tool
// and need no further repair.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{
		`{"path":"a","limit":"5.0"}`, `{"path":5,"deep":"true"}`, "```json\n{}\n```",
		`{"path":"a","limit":1e400}`, `{"path":"a","numbers":"[1e3]"}`, `"\"\""`,
		`{"arguments":"{}"}`, `{"path":"a","ratio":"-1e-99"}`, `{"path":"a","tags":{"x":null}}`,
	} {
		f.Add(s)
	}
	r, err := NewRegistry(echo("echo"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, written string) {
		got, err := r.Arguments("echo", written)
		if err != nil {
			if utf8.ValidString(written) && !utf8.ValidString(err.Error()) {
				t.Errorf("the error is no text: %q", err)
			}
			return
		}
		var args testArgs
		d := json.NewDecoder(bytes.NewReader(got))
		d.DisallowUnknownFields()
		err = d.Decode(&args)
		if err != nil && !strings.Contains(err.Error(), "cannot unmarshal number") {
			t.Errorf("Arguments(%q) = %s: %v", written, got, err)
		}
		again, err := r.Arguments("echo", string(got))
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("Arguments(%s) = %s, %v; want the same", got, again, err)
		}
	})
}

// FuzzInteger checks that integer does not change a value.
func FuzzInteger(f *testing.F) {
	for _, s := range []string{"5", "5.0", "1e3", "-0", "9223372036854775807", "1e-1", "5.0000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := integer(s)
		if !ok {
			return
		}
		want, _ := new(big.Rat).SetString(s)
		if r, _ := new(big.Rat).SetString(string(got)); want == nil || want.Cmp(r) != 0 {
			t.Errorf("integer(%q) = %s", s, got)
		}
	})
}
