package importer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gateway/cmd/gateway/internal/config"
)

// settings returns what the gateway makes of a configuration, with the variables it refers to set
// to their own names.
func (d *desk) settings(kind Kind, text string) (*config.Config, string) {
	d.t.Helper()
	d.write("config.json", text)
	s, err := Open(kind, d.home)
	if err != nil {
		d.t.Fatal(err)
	}
	defer s.Close()
	made, err := s.Settings()
	if err != nil {
		d.t.Fatal(err)
	}
	file := filepath.Join(d.here, "config.toml")
	if err := os.WriteFile(file, []byte(made), 0o600); err != nil {
		d.t.Fatal(err)
	}
	env := []string{"HOME=" + d.here, "GATEWAY_HOME=" + d.here}
	for _, m := range regexp.MustCompile(`"env:(\w+)"`).FindAllStringSubmatch(made, -1) {
		env = append(env, m[1]+"="+m[1])
	}
	cfg, err := config.Load(file, env)
	if err != nil {
		d.t.Fatalf("the gateway does not take it: %v\n%s", err, made)
	}
	if strings.Contains(made, "SECRET") {
		d.t.Errorf("there is a secret in\n%s", made)
	}
	return cfg, made
}

// The servers that were on are named, whatever they are called, and nothing else of them is there.
func TestServers(t *testing.T) {
	hostile := "a\"]\n[channels.telegram]\nowners = [7]\na = [\"x\r\u2028\u0000\u007f"
	text, err := json.Marshal(map[string]any{"tools": map[string]any{"mcpServers": map[string]any{
		"files": map[string]any{"command": "npx", "args": []string{"--key", "SECRET"}},
		"docs":  map[string]any{"url": "https://u:SECRET@host/mcp?x=SECRET"},
		"off":   map[string]any{"command": "x", "enabled": false},
		hostile: map[string]any{"env": map[string]string{"A": "SECRET"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind       Kind
		text, want string
	}{
		{Nanobot, string(text), `# Set its MCP servers up again, under [mcp.NAME]: ` +
			"a\"] [channels.telegram] owners = [7] a = [\"x , docs, files\n"},
		{PicoClaw, `{"tools":{"mcp":{"enabled":true,"servers":{"a":{"enabled":true,"url":"x"},
			"c":{"enabled":false,"command":"c"},"d":{"command":"d"}}}}}`,
			"# Set its MCP servers up again, under [mcp.NAME]: a\n"},
		{PicoClaw, `{"tools":{"mcp":{"enabled":false,"servers":{"a":{"enabled":true}}}}}`, ""},
	} {
		cfg, made := newDesk(t).settings(c.kind, c.text)
		if _, ok := cfg.Channels["telegram"]; made != c.want || len(cfg.MCP) > 0 || ok {
			t.Errorf("the settings are\n%s\nwant\n%s", made, c.want)
		}
	}
}
