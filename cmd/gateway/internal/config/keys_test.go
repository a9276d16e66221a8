package config

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// References in each of a model's keys are resolved, and each key is a secret.
func TestModelKeys(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "key"), "from file\n")
	env := []string{"GATEWAY_HOME=" + home, "MY_KEY=from variable"}
	text := "[models.m]\nmodel = \"x\"\nkey = \"env:MY_KEY\"\nkeys = [\"file:key\", \"env:MY_KEY\"]\n"
	c := mustLoad(t, text, env)
	m := c.Models["m"]
	want := []string{"from variable", "from file"}
	if got := m.AllKeys(); !reflect.DeepEqual(got, want) {
		t.Errorf("the keys are %q, want %q", got, want)
	}
	if got := strings.Join(c.Secrets(), " "); !strings.Contains(got, "from file") {
		t.Errorf("the secrets are %q", got)
	}
	err := c.Warnings()
	if err == nil || !strings.Contains(err.Error(), "models.m.keys: a key occurs") {
		t.Errorf("got the warnings %v", err)
	}
	if Changed(c, mustLoad(t, text, env)) != nil {
		t.Error("the same keys differ")
	}
	for _, tt := range []struct{ keys, want string }{
		{`["file:key", "env:MY_KEY"]`, `keys = ["file:key", "env:MY_KEY"] #`},
		{`["file:key", "sk-literal"]`, "# keys: redacted, from"},
	} {
		file := filepath.Join(home, "config.toml")
		write(t, file, "[models.m]\nmodel = \"x\"\nkeys = "+tt.keys+"\n")
		c, err := LoadWithoutSecrets(file, env)
		if err != nil {
			t.Fatal(err)
		}
		e := c.Explain()
		if got := e.TOML(false); !strings.Contains(got, tt.want) || strings.Contains(got, "sk-") {
			t.Errorf("keys = %s shows as\n%s\nwant %s", tt.keys, got, tt.want)
		}
		if literal := strings.Contains(tt.keys, "sk-"); e.Literal != literal {
			t.Errorf("keys = %s: the file has credentials: %v", tt.keys, e.Literal)
		}
	}
	for name, keys := range map[string]string{
		"text": `"sk-literal"`, "numbers": `["sk-literal", 7]`, "missing": `["sk-literal", "env:NONE"]`,
	} {
		_, err := load(t, "[models.m]\nmodel = \"x\"\nkeys = "+keys+"\n", env)
		if err == nil || !strings.Contains(err.Error(), "models.m.keys: ") ||
			strings.Contains(err.Error(), "sk-") {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}

// Logs and reports name a key by its position. They also show the end of a long key.
func TestKeyName(t *testing.T) {
	for key, want := range map[string]string{
		"sk-0123456789-abcd": "key 2 (…abcd)", "short": "key 2",
	} {
		if got := KeyName(2, key); got != want {
			t.Errorf("%q is named %q, want %q", key, got, want)
		}
	}
}
