//go:build unix

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"gateway/channels/telegram/telegramtest"
)

// withTemplate is a configuration with a hook that has a template.
const withTemplate = quiet + `
[hooks.alerts]
to = "telegram/1"
secret = "` + hookSecret + `"
rate = 100000
template = '''{{ title }}{{ jobs.0.name | "" }}{{ jobs.0.log }} {{ labels }}'''
`

// TestHookTemplate checks that a template makes the message, and that an empty message is
// ignored.
func TestHookTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{channel: withTemplate})
	w.telegram.AddUser(telegramtest.User{ID: 1, First: "Anna"})
	o := w.operate()
	for _, tt := range []struct {
		key, body string
		code      int
		want      string // text in the answer
	}{
		{"k1", `{"title":["` + strings.Repeat("x", 70_000) + `"]}`, 422,
			"the hook's template can't be filled with it: the message becomes too long"},
		{"k3", `{"jobs":[7]}`, 202, `"ignored":true`},
		{"k4", `{"title":"CI: ","jobs":[{"name":"test","log":"a<b\nand more"}],
			"labels":{"os":"linux","cpus":[1,2.50],"by":null}}`, 202, `"id":"hook:alerts:k4"`},
	} {
		code, body, err := o.post(t, o.hook("alerts", tt.key, tt.body))
		if err != nil || code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("answer to %.80s = %d %s, %v; want %d with %s",
				tt.body, code, body, err, tt.code, tt.want)
		}
	}
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
	const want = "CI: testa<b\nand more " + `{"by":null,"cpus":[1,2.50],"os":"linux"}`
	if got := w.texts(1)[0]; !strings.Contains(got, want) {
		t.Errorf("answer = %q, want what the template has made of the post: %q", got, want)
	}
}

// TestHookTemplateRefused checks that a template with other syntax than placeholders is rejected
// at the start.
func TestHookTemplateRefused(t *testing.T) {
	t.Parallel()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{{.a":               "hooks.alerts.template: hooks: line 1: a placeholder begins with {{",
		"\n{{if .a}}{{end}}": `hooks: line 2: "{{if .a}}" is not a placeholder`,
	} {
		settings := strings.Replace(withTemplate, "{{ labels }}", text, 1)
		w := newWorld(t, worldOptions{channel: settings})
		cmd := exec.CommandContext(t.Context(), path, "config", "check")
		cmd.Env = w.environ()
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("config check of %q = %v: %s, want %s", text, err, out, want)
		}
	}
}
