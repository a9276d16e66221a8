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
	t.Parallel()
	const multi = "multipart/form-data; charset=utf-8; boundary=X"
	const js, form = "application/json; charset=utf-8", "application/x-www-form-urlencoded"
	for _, tt := range []struct{ template, contentType, body, want string }{
		{"", "text/plain", "as it is\n", "as it is\n"},
		{"", "", "as it is", "as it is"},
		{"", "image/png", "text all the same", "text all the same"},
		{"", "application/json", "{\n \"b\" : [1, 2.50],\n \"a\":\"<é>\"}", `{"b":[1,2.50],"a":"<é>"}`},
		{"", "application/vnd.api+json", `[ 1 ]`, `[1]`},
		{"", form, "b=2+3&a=1&a=7", `{"a":"1","b":"2 3"}`},
		{"", form, `payload={"a": "b c"}`, `{"payload":"{\"a\": \"b c\"}"}`},
		// Programs such as curl call everything a form.
		{"", form, "disk 91% full & more = bad", "disk 91% full & more = bad"},
		{"", form, "failed", "failed"},
		{"", form, "load=95%", "load=95%"},
		{"{{ . }}", form, "status=down; host=db1", "status=down; host=db1"},
		{"", form, `{"url": "http://a/?b=c"}`, `{"url":"http://a/?b=c"}`},
		{"{{ status }}: {{ url }}", form, `{"status":"failed","url":"http://a/?b=c&d"}`,
			"failed: http://a/?b=c&d"},

		// Many programs write the charset without a hyphen. .NET writes a byte order mark.
		{"{{ status }}", "application/json; charset=utf8", `{"status":"failed"}`, "failed"},
		{"{{ status }}", "application/json", "\ufeff{\"status\":\"failed\"}", "failed"},
		{"", "text/plain; charset=UTF8", "\ufeffas it is", "as it is"},
		{"{{ a }}", form, "\ufeffa=1", "1"},

		{"{{ status }}", "text/plain;charset=UTF-8", ` {"status":"failed"}`, "failed"},
		{"{{ 0.status }}", "", `[{"status":"failed"}]`, "failed"},
		{"", "text/plain", `{ "as": "it is" }`, `{ "as": "it is" }`},
		{"{{ . }}", "text/plain", `"as" it is`, `"as" it is`},
		{"{{ . }}", "text/plain", "[INFO] as it is", "[INFO] as it is"},

		// Plex adds a picture to its JSON, see https://github.com/adnanh/webhook/issues/311.
		{"{{ payload.event }}: {{ note }}, {{ thumb }}", multi, "--X\r\n" +
			"Content-Disposition: form-data; name=\"payload\"\r\nContent-Type: application/json\r\n\r\n" +
			"{\"event\":\"media.play\"}\r\n--X\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\n" +
			"grüß\r\n--X\r\nContent-Disposition: form-data; name=\"thumb\"; filename=\"a.jpg\"\r\n" +
			"Content-Type: image/jpeg\r\n\r\n\xff\xd8\r\n--X--\r\n", "media.play: grüß, a.jpg"},
		{"", multi, "--X\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--X--\r\n",
			`{"a":"1"}`},

		{"{{ repository.name }}: {{.status}}", js,
			`{"repository":{"name":"site"},"status":"failed"}`, "site: failed"},
		{"{{missing}}|{{null}}|{{list}}|{{object}}|{{yes}}", js,
			`{"null":null,"list":[1,"a"],"object":{"k":"<x>"},"yes":true}`,
			`||[1,"a"]|{"k":"<x>"}|true`},
		{"{{whole}} {{real}} {{large}} {{huge}}", js,
			`{"whole":1000000,"real":2.50,"large":1e21,"huge":123456789012345678901234567890}`,
			"1000000 2.50 1e21 123456789012345678901234567890"},
		{`{{ a.b | "none" }} {{ a | "no \"a\"" }} {{ e | "empty" }} {{ x.y | "" }}.`, js,
			`{"a":{"b":"here"},"e":""}`, `here {"b":"here"} empty .`},
		{`{{ alerts.1.name }} {{ alerts.2.name | "none" }} {{ alerts.-1.name }}{{ alerts.x }}`, js,
			`{"alerts":[{"name":"a"},{"name":"b"}]}`, "b none"},
		{"{{.}}", js, `{"b":1,"a":"<x>"}`, `{"a":"<x>","b":1}`},
		{"{{ . }}", "text/plain", "{{.secret}}", "{{.secret}}"},
		{"{{ a }}", "text/plain", "text", ""},
		{"{{a}}", js, `{"a":"<no value> {{b}}"}`, "<no value> {{b}}"},
		{"{{a}} {{b}}", form, "a=1&b=x%20y", "1 x y"},
		{"{{ straße.naïve }} }}", js, `{"straße":{"naïve":"ü"}}`, "ü }}"},
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
	t.Parallel()
	long := `"` + strings.Repeat("x", maxText/2) + `"`
	for _, tt := range []struct {
		template, body string
		code           int
	}{
		{"{{.}}{{.}}.", long, 422},
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
	t.Parallel()
	for text, want := range map[string]string{
		"{{":                     "line 1: a placeholder begins with {{",
		"a\n{{ b }} {{ c":        "line 2: a placeholder begins with {{",
		"{{ a\nb {{ c }}":        "is not a placeholder",
		"{{}}":                   `"{{}}" is not a placeholder`,
		"{{ if .a }}x{{ end }}":  `"{{ if .a }}" is not a placeholder: write {{ PATH }}`,
		"\n\n{{ a b }}":          "line 3: ",
		"{{ limit 3 .text }}":    "is not a placeholder",
		"{{ a | b }}":            "is not a placeholder",
		`{{ a | "\z" }}`:         "is not a quoted text",
		"{{ a..b }}":             "is not a placeholder",
		"{{/* a remark */}}":     "is not a placeholder",
		`{{ a }}{{ "text" }}`:    "is not a placeholder",
		`{{ $x }}`:               "is not a placeholder",
		`{{ | "only default" }}`: "is not a placeholder",
	} {
		if _, err := ParseTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseTemplate(%q) = %v, want %q", text, err, want)
		}
	}
}

// A template is either refused or produces a text within the limit.
func FuzzTemplate(f *testing.F) {
	f.Add(`{{ a.b }} and {{ . | "x" }}`, `{"a":{"b":1}}`)
	f.Add("{{a.0}}", `{"a":[null]}`)
	f.Fuzz(func(t *testing.T, text, body string) {
		tmpl, err := ParseTemplate(text)
		if err != nil {
			return
		}
		data, err := parseJSON([]byte(body))
		if err != nil {
			return
		}
		got, err := tmpl.fill(data, 1000)
		if err == nil && len(got) > 1000 {
			t.Errorf("%q of %q has %d bytes", text, body, len(got))
		}
		if !strings.Contains(text, "{{") && err == nil && got != text {
			t.Errorf("%q without placeholders becomes %q", text, got)
		}
	})
}

// parseSignature returns the signature that was written, and only the correct signature opens a
// hook.
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

// Each post becomes a valid text or is refused with a status code from 400 to 499.
func FuzzText(f *testing.F) {
	f.Add("application/json", []byte(`{"a":{"b":[1,null,"x"]},"list":[1.5e300,{}]}`))
	f.Add("application/json", []byte(`[[[[1e999]]]]`))
	f.Add("application/x-www-form-urlencoded", []byte("a=1&list=2&b"))
	f.Add("text/plain; charset=utf-8", []byte("hello \x00"))
	f.Add("multipart/form-data; boundary=x", []byte("--x--"))
	list := []Hook{{}, *parsed(f, "{{.}}"), *parsed(f, "{{.a.b}} {{list}}{{ list.1 }}")}
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
