package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
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

// A path that leads to a database or to a device must not fill the memory.
func TestLongSecretFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, strings.Repeat("k", maxSecretFile))
	if _, err := Follow("file:"+file, nil); err != nil {
		t.Errorf("a secret of %d bytes: %v", maxSecretFile, err)
	}
	write(t, file, strings.Repeat("k", maxSecretFile+1))
	if _, err := Follow("file:"+file, nil); err == nil {
		t.Errorf("a file of %d bytes is taken for a secret", maxSecretFile+1)
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
[mcp.y]
url = "https://user:pass-word@mcp.example.org/api/s/0123456789abcdefghij/mcp?profile=friendly-name"
[mcp.z]
url = "https://mcp.example.org/mcp?token=tok-9876543210fedcba"
[mcp.hidden]
url = "env:MCP_URL"
[exec]
env = ["GH_TOKEN", "EDITOR", "SHORT_KEY"]
`, append(environ(t), "GH_TOKEN=gh-token-value", "MCP_URL=https://mcp.example.org/s/short",
		"EDITOR=/usr/bin/editor", "SHORT_KEY=true"))
	got := c.Secrets()
	slices.Sort(got)
	if want := []string{"0123456789abcdefghij", "gh-token-value",
		"https://mcp.example.org/s/short", "mcp-key", "model-key", "pass-word",
		"telegram-token", "tok-9876543210fedcba"}; !slices.Equal(got, want) {
		t.Errorf("Secrets = %q, want %q", got, want)
	}
	if got := c.MCP["hidden"].URL; got != "https://mcp.example.org/s/short" {
		t.Errorf("the URL of the server is %q, want what the variable holds", got)
	}
}

// If a reference can't be resolved, Load fails. LoadWithoutSecrets succeeds, and Unresolved
// reports the reference to those who need the credential.
func TestUnresolved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	err := os.WriteFile(file, []byte("[channels.phone]\ntype = \"whatsapp\"\nproxy = \"env:P\"\n"+
		"[channels.phones]\ntype = \"discord\"\ntoken = \"file:none\"\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"HOME=" + t.TempDir()}
	if _, err := Load(file, environ); err == nil {
		t.Error("Load takes references that lead nowhere")
	}
	c, err := LoadWithoutSecrets(file, environ)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Unresolved("channels", "phone"); err == nil ||
		!strings.Contains(err.Error(), "variable P is not set") ||
		strings.Contains(err.Error(), "phones") {
		t.Errorf("Unresolved of one account = %v", err)
	}
	if err := c.Unresolved("channels", "terminal"); err != nil {
		t.Errorf("Unresolved of an account without secrets = %v", err)
	}
	_, err = LoadWithoutSecrets(file, append(environ, "GATEWAY_CHANNELS__PHONE__PROXY=env:a b"))
	if err == nil {
		t.Error("a reference that can't lead anywhere is taken")
	}
}
