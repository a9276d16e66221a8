package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Another process of the home gets the same configuration without the credentials, wherever the
// credentials are.
func TestShare(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, "config.toml")
	const credentials = `
[http]
token = "secret-of-the-operator"
[models.main]
model = "m"
base_url = "https://ann:secret-in-url@example.org/v1"
key = "secret-key-of-model"
headers = { "X-Key" = "secret-in-header" }
body = { user = "secret-in-body" }
[channels.telegram]
token = "1:secret-of-bot"
owners = ["7"]
[mcp.search]
url = "https://example.org/secret-in-path-1234567890"
`
	const others = `
[gateway]
timezone = "Asia/Tokyo"
[log]
level = "debug"
[agent]
model = "main"
turn_timeout = "7m"
[tools.exec]
user = "deny"
`
	if err := os.WriteFile(file, []byte(credentials+others), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, []string{"HOME=" + home})
	if err != nil {
		t.Fatal(err)
	}
	text := c.Share()
	if strings.Contains(string(text), "secret-") {
		t.Errorf("a credential shows in %s", text)
	}
	shared, err := Shared(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"channels.telegram.token", "http.token", "mcp.search.url",
		"models.main.base_url", "models.main.body.user", "models.main.headers.X-Key",
		"models.main.key"}
	if got := Changed(c, shared); !slices.Equal(got, want) {
		t.Errorf("what differs is %q, want %q", got, want)
	}
	if shared.Gateway.Location.String() != "Asia/Tokyo" || shared.File != c.File ||
		!shared.FileExists {
		t.Errorf("shared %+v, file %q", shared.Gateway, shared.File)
	}
}
