//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"

	"gateway/channels/telegram/telegramtest"
)

// withTemplate are settings with a hook whose template uses most of what templates have.
const withTemplate = quiet + `
[hooks.alerts]
to = "telegram/1"
secret = "` + hookSecret + `"
rate = 100000
template = '''
{{- define "step"}}{{.name}}{{with .steps}} ({{range $i, $s := .}}{{if $i}}, {{end}}
{{- template "step" $s}}{{end}}){{end}}{{end}}
{{- range .wait}}{{end}}
{{- $failed := 0}}
{{- range .jobs}}{{if eq .result "ok" "skipped"}}{{continue}}{{end}}
{{- $failed = len (printf "%*s" $failed "" | print "x")}}
{{- template "step" .}} after {{.seconds}} s: {{limit 7 .log | printf "%q"}}. {{end}}
{{- range $name, $value := .labels}}[{{$name}}={{$value}}]{{end}}
{{- if ge $failed 2}} {{$failed}} of {{len .jobs}}{{end}}'''
`

// A template makes of a post what it says, and what can't be filled is refused with the place in
// the template and the reason. Numbers that are posted don't keep the gateway busy.
func TestHookTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: withTemplate})
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "Anna"})
	o := w.operate()
	for _, tt := range []struct {
		key, body string
		code      int
		want      string // in the answer
	}{
		{"k1", `{"jobs":[7]}`, 422, "alerts:5:25: at <.result>: an integer has no field result"},
		{"k2", `{"wait":9000000000000}`, 422, "alerts: it takes too long"},
		{"k3", `{"wait":3}`, 202, `"ignored":true`},
		{"k4", `{"jobs":[{"result":"ok"},
			{"name":"test","result":"bad","seconds":2.50,"log":"a<b\nand more",
			 "steps":[{"name":"vet"},{"name":"race","steps":[{"name":"bus"}]}]},
			{"name":"lint","result":null,"seconds":100000000}],
			"labels":{"os":"linux","cpus":[1,2],"by":null}}`, 202, `"id":"hook:alerts:k4"`},
	} {
		code, body, err := o.post(t, o.hook("alerts", tt.key, tt.body))
		if err != nil || code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("answer to %s = %d %s, %v; want %d with %s",
				tt.body, code, body, err, tt.code, tt.want)
		}
	}
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
	const want = `test (vet, race (bus)) after 2.5 s: "a<b\nand…". lint after 100000000 s: "". ` +
		`[by=][cpus=[1,2]][os=linux] 2 of 3`
	if got := w.texts(1)[0]; !strings.Contains(got, want) {
		t.Errorf("answer = %q, want what the template has made of the post: %q", got, want)
	}
}

// A template that can't be read, or that wants what is left out, is refused before anything starts.
func TestHookTemplateRefused(t *testing.T) {
	t.Parallel()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{{.a":        "hooks.alerts.template: hooks: template: alerts:1: ",
		"\n{{js .a}}": `template: alerts:2: function "js" not defined`,
	} {
		settings := strings.Replace(withTemplate, "{{- define", text+"{{- define", 1)
		w := newWorld(t, worldOptions{channel: settings})
		cmd := exec.CommandContext(t.Context(), path, "config", "check")
		cmd.Env = w.environ()
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("config check of %q = %v: %s, want %s", text, err, out, want)
		}
	}
}
