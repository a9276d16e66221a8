package hooks

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	const js, form = "application/json; charset=utf-8", "application/x-www-form-urlencoded"
	for _, tt := range []struct{ template, contentType, body, want string }{
		{"", "text/plain", "as it is\n", "as it is\n"},
		{"", "", "as it is", "as it is"},
		{"", "image/png", "text all the same", "text all the same"},
		{"", "application/json", "{\n \"b\" : [1, 2.50],\n \"a\":\"<é>\"}", `{"b":[1,2.50],"a":"<é>"}`},
		{"", "application/vnd.api+json", `[ 1 ]`, `[1]`},
		{"", form, "b=2+3&a=1&a=7", `{"a":"1","b":"2 3"}`},

		{"{{.repository.name}}: {{.status}}", js,
			`{"repository":{"name":"site"},"status":"failed"}`, "site: failed"},
		{"{{.missing}}|{{.null}}|{{.list}}|{{.object}}|{{.yes}}", js,
			`{"null":null,"list":[1,"a"],"object":{"k":1},"yes":true}`, `||[1,"a"]|{"k":1}|true`},
		{"{{.whole}} {{.real}} {{.large}} {{.huge}}", js,
			`{"whole":1000000,"real":0.1,"large":1e21,"huge":123456789012345678901234567890}`,
			"1000000 0.1 1000000000000000000000 123456789012345680000000000000"},
		{"{{if eq .n 5}}five{{end}}{{if gt .n 4}} more{{end}}", js, `{"n":5}`, "five more"},
		{`{{if eq .status "firing"}}on fire{{end}}`, js, `{"status":"resolved"}`, ""},
		{"{{range .alerts}}- {{.labels.name}}\n{{end}}", js,
			`{"alerts":[{"labels":{"name":"a"}},{"labels":{"name":"b"}}]}`, "- a\n- b"},
		{"{{range .none}}x{{else}}empty{{end}}", js, `{}`, "empty"},
		{"{{with .a}}{{.b}}{{end}}ok", js, `{}`, "ok"},
		{"{{limit 3 .text}} {{.text | limit 9}}", js, `{"text":"äöüß"}`, "äöü… äöüß"},
		{"{{json .}}", js, `{"b":1,"a":"<x>"}`, `{"a":"<x>","b":1}`},
		{"{{$x := .a}}{{$x}}{{$x = .b}}{{$x}}", js, `{"a":1,"b":2}`, "12"},
		{`{{define "p"}}[{{.none}}]{{end}}{{template "p" .}}`, js, `{}`, "[]"},
		{"{{.}}", "text/plain", "{{.secret}}", "{{.secret}}"},
		{"{{.a}}", js, `{"a":"<no value> <nil> {{.b}}"}`, "<no value> <nil> {{.b}}"},
		{"{{.a}} {{.b}}", form, "a=1&b=x%20y", "1 x y"},
		{"{{index . 1}}", js, `["a","b"]`, "b"},
		{"{{printf \"%s-%d\" .s .n}}", js, `{"s":"x","n":3}`, "x-3"},
	} {
		h := Hook{}
		if tt.template != "" {
			h = *parsed(t, tt.template)
		}
		got, err := h.text(tt.contentType, []byte(tt.body))
		if err != nil || got != tt.want {
			t.Errorf("%s of %s = %q, %v; want %q", tt.template, tt.body, got, err, tt.want)
		}
	}
}

func TestTextRefused(t *testing.T) {
	long := `{"list":[` + strings.Repeat(`"0123456789abcdef",`, 1000) + `0]}`
	for _, tt := range []struct {
		template, body string
		code           int
	}{
		{"{{range .list}}{{range $.list}}{{.}}{{end}}{{end}}", long, 422},
		{"{{index .list 5000}}", long, 422},
		{`{{define "a"}}{{template "a" .}}{{end}}{{template "a"}}`, long, 422},
		{"{{.list.x}}", long, 422},
		{"", `"` + strings.Repeat("x", maxText) + `"`, 413},
	} {
		h := Hook{}
		if tt.template != "" {
			h = *parsed(t, tt.template)
		}
		got, err := h.text("application/json", []byte(tt.body))
		no, ok := errors.AsType[*refusal](err)
		if !ok || no.code != tt.code || got != "" {
			t.Errorf("%s = %q, %v; want code %d", tt.template, got, err, tt.code)
		}
	}
}

func TestParseTemplate(t *testing.T) {
	for _, text := range []string{"{{", "{{nosuch .}}", "{{if}}", "{{end}}"} {
		if _, err := ParseTemplate("x", text); err == nil {
			t.Errorf("ParseTemplate(%q) has no mistake", text)
		}
	}
}

// What is read of a signature is what was written, and nothing else opens a hook.
func FuzzSignature(f *testing.F) {
	f.Add("sha256="+signature("x"), "x")
	f.Add(signature(""), "")
	f.Add("sha256=sha256="+signature("x"), "x")
	f.Add(" SHA256="+strings.ToUpper(signature("x")), "x")
	f.Fuzz(func(t *testing.T, header, body string) {
		mac, ok := parseSignature(header)
		digits := strings.ToLower(strings.TrimPrefix(strings.TrimSpace(header), "sha256="))
		if want := len(digits) == 64 && isHex(digits); ok != want {
			t.Errorf("parseSignature(%q) = %t, want %t", header, ok, want)
		}
		if ok && hex.EncodeToString(mac[:]) != digits {
			t.Errorf("parseSignature(%q) = %x", header, mac)
		}
		h := Hook{Secret: secret}
		if got := h.signed(header, []byte(body)); got != (digits == signature(body)) {
			t.Errorf("signed(%q, %q) = %t", header, body, got)
		}
	})
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// Whatever is posted becomes a text of the right form, or is refused with a code for that.
func FuzzText(f *testing.F) {
	f.Add("application/json", []byte(`{"a":{"b":[1,null,"x"]},"list":[1.5e300,{}]}`))
	f.Add("application/json", []byte(`[[[[1e999]]]]`))
	f.Add("application/x-www-form-urlencoded", []byte("a=1&list=2&b"))
	f.Add("text/plain; charset=utf-8", []byte("hello \x00"))
	f.Add("multipart/form-data; boundary=x", []byte("--x--"))
	list := []Hook{{}, *parsed(f, "{{.}}"), *parsed(f, "{{.a.b}} {{limit 5 .list}}{{json .}}"),
		*parsed(f, "{{range .list}}{{.}}{{end}}")}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		for _, h := range list {
			text, err := h.text(contentType, body)
			if err != nil {
				no, ok := errors.AsType[*refusal](err)
				if !ok || no.code < 400 || no.code >= 500 || text != "" {
					t.Errorf("text = %q, %v", text, err)
				}
				continue
			}
			if !utf8.ValidString(text) || len(text) > maxText {
				t.Errorf("text = %q", text)
			}
			if h.Template == nil && contentType == "application/json" && !json.Valid([]byte(text)) {
				t.Errorf("text = %q is no JSON", text)
			}
		}
	})
}
