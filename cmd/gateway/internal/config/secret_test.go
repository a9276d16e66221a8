package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSecretStaysSecret(t *testing.T) {
	secret := "hunter2"
	s := Secret{&secret}
	var buf bytes.Buffer
	inside := struct{ hidden Secret }{s}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%p"} {
		fmt.Fprintf(&buf, verb+" "+verb+" "+verb+"\n", s, &s, Model{Key: s})
		fmt.Fprintf(&buf, verb+"\n", inside)
	}
	log := slog.New(slog.NewTextHandler(&buf, nil))
	log.Info("text", "key", s, "model", Model{Key: s})
	log = slog.New(slog.NewJSONHandler(&buf, nil))
	log.Info("json", "key", s, "model", Model{Key: s}, "inside", inside)
	values := map[string]any{"key": s, "model": Model{Key: s}}
	if err := json.NewEncoder(&buf).Encode(values); err != nil {
		t.Fatal(err)
	}
	buf.WriteString(s.String())
	for _, leak := range []string{secret, fmt.Sprintf("%x", secret)} {
		if strings.Contains(buf.String(), leak) {
			t.Errorf("%q shows in:\n%s", leak, buf.String())
		}
	}
	for _, want := range []string{"msg=text key=redacted ", `"msg":"json","key":"redacted"`} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("want %s in:\n%s", want, buf.String())
		}
	}
	if s.Reveal() != secret {
		t.Errorf("Reveal = %q, want %q", s.Reveal(), secret)
	}
}

func TestSecretReferences(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "key"), "from file\n")
	env := []string{"GATEWAY_HOME=" + home, "MY_KEY=from variable"}
	for value, want := range map[string]string{
		"literal":    "literal",
		"env:MY_KEY": "from variable",
		"file:key":   "from file",
		"file:" + filepath.ToSlash(filepath.Join(home, "key")): "from file",
	} {
		c := mustLoad(t, "[models.demo]\nkey = '"+value+"'\n", env)
		if got := c.Models["demo"].Key.Reveal(); got != want {
			t.Errorf("key %q = %q, want %q", value, got, want)
		}
	}
}

func TestSecrets(t *testing.T) {
	c := mustLoad(t, `
[models.main]
model = "m"
key = "model-key"
[channels.telegram]
token = "telegram-token"
[channels.off]
type = "discord"
enabled = false
token = "env:NOT_THERE"
[mcp.x]
command = ["x"]
[mcp.x.env]
KEY = "mcp-key"
`, environ(t))
	got := c.Secrets()
	slices.Sort(got)
	if want := []string{"mcp-key", "model-key", "telegram-token"}; !slices.Equal(got, want) {
		t.Errorf("Secrets = %q, want %q", got, want)
	}
}
