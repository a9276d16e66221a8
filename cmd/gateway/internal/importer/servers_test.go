package importer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// described returns a server in words, with the names of its variables, which are their values.
func described(s config.Server) string {
	var parts []string
	if !s.Enabled {
		parts = append(parts, "off")
	}
	parts = append(parts, strings.Join(s.Command, " ")+s.URL)
	if len(s.Allow) > 0 {
		parts = append(parts, "allow "+strings.Join(s.Allow, " "))
	}
	for _, table := range []map[string]config.Secret{s.Env, s.Headers} {
		for _, key := range slices.Sorted(maps.Keys(table)) {
			name := strings.TrimPrefix(table[key].Reveal(), "env:") // of those that are off
			parts = append(parts, key+"="+name)
		}
	}
	return strings.Join(append(parts, s.Timeout.String()), ", ")
}

func TestServers(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   Kind
		config string
		want   map[string]string
	}{
		{"program", Nanobot, `{"tools":{"mcpServers":{"files":{"command":"npx","args":["-y",
			"@scope/server-files-for-the-2024-release","/srv/data"],
			"env":{"API_KEY":"SECRET","PATH":"SECRET"},"toolTimeout":45,"enabledTools":["*"]}}}}`,
			map[string]string{"files": "npx -y @scope/server-files-for-the-2024-release " +
				"/srv/data, API_KEY=FILES_API_KEY, PATH=FILES_PATH, 45s"}},
		{"web", Nanobot, `{"tools":{"mcp_servers":{"docs":{"type":"streamableHttp",
			"url":"https://example.com/mcp","headers":{"Authorization":"Bearer SECRET"},
			"enabled_tools":["read","list"]}}}}`,
			map[string]string{"docs": "https://example.com/mcp, allow read list, " +
				"Authorization=DOCS_AUTHORIZATION, 1m0s"}},
		{"picoclaw", PicoClaw, `{"tools":{"mcp":{"enabled":true,"servers":{
			"a":{"enabled":true,"url":"http://127.0.0.1:1/x","type":"sse"},
			"b":{"enabled":true,"command":"b","env_file":".env"},
			"c":{"enabled":false,"command":"c"},"d":{"command":"d"}}}}}`,
			map[string]string{"a": "http://127.0.0.1:1/x, 1m0s", "b": "off, b, 1m0s"}},
		{"picoclaw without", PicoClaw, `{"tools":{"mcp":{"enabled":false,"servers":{
			"a":{"enabled":true,"command":"a"}}}}}`, map[string]string{}},
		{"secrets in the way", Nanobot, `{"tools":{"mcpServers":{
			"a":{"command":"npx","args":["--api-key","SECRET","--token=SECRET","-y"]},
			"b":{"command":"docker","args":["run","-e","X=SECRET","-e","Y","image"]},
			"c":{"command":"db","args":["postgresql://me:SECRET@host/db"]},
			"d":{"command":"r","args":["--header","SECRET","Authorization: SECRET"]},
			"e":{"command":"r","args":["SECRET-a1b2c3d4e5f6g7h8i9j0",
			"1234567890:SECRET","12345678-01ab-SECRET"]},
			"f":{"url":"https://host/mcp?x=SECRET"},"g":{"url":"https://u:SECRET@host/mcp"},
			"h":{"url":"https://host/sse","headers":{"X":7,"Y":["SECRET"]}},
			"i":{"url":"https://host/mcp/s/SECRET1a2b3c4d5e6f7g8h/mcp"},
			"j":{"url":"https://host/12345678-01ab-SECRET/mcp"},
			"k":{"url":"https://host/mcp#SECRET"}}}}`,
			map[string]string{
				"a": "off, npx --api-key LEFT-OUT LEFT-OUT -y, 1m0s",
				"b": "off, docker run -e LEFT-OUT -e Y image, 1m0s",
				"c": "off, db LEFT-OUT, 1m0s", "d": "off, r --header LEFT-OUT LEFT-OUT, 1m0s",
				"e": "off, r LEFT-OUT LEFT-OUT LEFT-OUT, 1m0s",
				"f": "off, , 1m0s", "g": "off, , 1m0s", "i": "off, , 1m0s",
				"j": "off, , 1m0s", "k": "off, , 1m0s",
				"h": "off, https://host/sse, X=H_X, Y=H_Y, 1m0s"}},
		{"tools that are not allowed", Nanobot, `{"tools":{"mcpServers":{
			"a":{"command":"a","enabledTools":[]},
			"b":{"command":"b","enabledTools":["mcp_b_x","[y"]},
			"c":{"command":"c","enabledTools":["x","mcp_c_y"]}}}}`,
			map[string]string{"a": "off, a, 1m0s", "b": "off, b, 1m0s",
				"c": "off, c, allow x, 1m0s"}},
		{"neither", Nanobot, `{"tools":{"mcpServers":{"a":{},"b":{"url":"file:///etc/passwd"},
			"c":{"type":"stdio","url":"http://host"}}}}`,
			map[string]string{"a": "off, , 1m0s", "b": "off, , 1m0s", "c": "off, , 1m0s"}},
		{"variables of the gateway's own", Nanobot, `{"tools":{"mcpServers":{
			"gateway":{"command":"a","env":{"HOME":"SECRET"}},
			"1":{"command":"a","env":{"A":"SECRET"}},
			"a-b":{"command":"a","env":{"C":"SECRET"}},
			"a":{"command":"a","env":{"B_C":"SECRET"}}}}}`,
			map[string]string{"gateway": "a, HOME=MCP_GATEWAY_HOME, 1m0s",
				"1": "a, A=MCP_1_A, 1m0s", "a": "a, B_C=A_B_C, 1m0s", "a-b": "a, C=A_B_C_2, 1m0s"}},
		{"no table", Nanobot, `{"tools":{"mcpServers":{"a":{"command":"a","env":["SECRET"]}}}}`,
			map[string]string{"a": "a, 1m0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, made := newDesk(t).settings(c.kind, c.config)
			got := make(map[string]string)
			for name, s := range cfg.MCP {
				got[name] = described(s)
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("the servers are %q\nwant %q in\n%s", got, c.want, made)
			}
		})
	}
}

// Whatever a server is called, what is made of it says nothing else than that.
func TestHostileServers(t *testing.T) {
	hostile := []string{"", "a b", "a.b", "NAME",
		"a\"]\n[channels.telegram]\nowners = [7]\na = [\"x", "ä\u2028\u0000\u007f", "'''",
		strings.Repeat("long", 30), "-", "a\r\nb", "#", "enabled"}
	servers := make(map[string]any)
	for _, name := range hostile {
		values := make(map[string]string)
		for _, key := range hostile {
			values[key] = "SECRET"
		}
		servers[name] = map[string]any{"command": "run " + name, "args": []string{name},
			"env": values, "enabledTools": []string{"x"}}
	}
	text, err := json.Marshal(map[string]any{"tools": map[string]any{"mcpServers": servers}})
	if err != nil {
		t.Fatal(err)
	}
	cfg, made := newDesk(t).settings(Nanobot, string(text))
	if _, ok := cfg.Channels["telegram"]; ok || len(cfg.MCP) != len(hostile) {
		t.Errorf("there are %d servers, want %d and no more than that, in\n%s", len(cfg.MCP),
			len(hostile), made)
	}
	var commands, want []string
	for name, s := range cfg.MCP {
		if len(s.Command) == 2 {
			commands = append(commands, s.Command[0])
		}
		if len(name) > maxServerName || !slices.Equal(s.Allow, []string{"x"}) {
			t.Errorf("%q is a server with the tools %q", name, s.Allow)
		}
	}
	for _, name := range hostile {
		want = append(want, "run "+name)
	}
	slices.Sort(commands)
	slices.Sort(want)
	if !slices.Equal(commands, want) {
		t.Errorf("the commands are %q, want %q", commands, want)
	}
}
