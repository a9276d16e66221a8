package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// LoadLenient reads everything that a mistake does not affect. It fails if a mistake leaves
// unclear which home or database is meant.
func TestLoadDespiteMistakes(t *testing.T) {
	for _, test := range []struct {
		name, file string
		environ    []string
		mistakes   []string // parts of the reported mistakes, one each
		refused    bool
		owners     bool // whether [channels] may have more settings than were read
	}{
		{name: "none", file: "[agent]\nslots = 8"},
		{name: "unknown key", file: "[channels.telegram]\ntoken = 'x:y'\ngruops = ['1']",
			mistakes: []string{"config.toml:3: channels.telegram.gruops"}, owners: true},
		{name: "wrong value", file: "[agent]\nslots = 'x'\nwaiting = 0",
			mistakes: []string{"config.toml:2: agent.slots", "config.toml:3: agent.waiting"}},
		{name: "no TOML", file: "[agent]\nslots = = 3\n[channels.telegram]\ntoken = x:y\nnonsense",
			mistakes: []string{"config.toml:2", "config.toml:4", "config.toml:5"}, owners: true},
		{name: "unclosed string", file: "[agent]\nslots = 3\n[log]\nfile = \"\"\"x\n",
			mistakes: []string{"config.toml:"}, owners: true},
		{name: "a table twice",
			file:     "[log]\nlevel = 'info'\n[agent]\nslots = 3\n[log]\nlevel = 'warn'\n",
			mistakes: []string{"config.toml:"}, owners: true},
		{name: "timezone", file: "[gateway]\ntimezone = 'Nowhere'",
			mistakes: []string{"gateway.timezone"}},
		{name: "home", file: "[gateway]\nhome = 3", refused: true},
		{name: "home without quotes", file: "[gateway]\nhome = ~/elsewhere", refused: true},
		{name: "misspelled home", file: "[gateway]\nhoem = '/x'", refused: true},
		{name: "home that a variable sets", file: "[gateway]\nhome = 3",
			environ: []string{"GATEWAY_HOME=/srv/gateway"}, mistakes: []string{"gateway.home"}},
		{name: "store", file: "[store]\nurl = 'mysql:x'", refused: true},
		{name: "variable", environ: []string{"GATEWAY_AGENT__SLOTS=none"},
			mistakes: []string{"GATEWAY_AGENT__SLOTS"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(file, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := LoadLenient(file, append(test.environ, "HOME="+t.TempDir()))
			if test.refused {
				if err == nil {
					t.Fatal("loaded, though nobody knows which home is meant")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			told := ""
			if err := c.Mistakes(); err != nil {
				told = err.Error()
			}
			for _, want := range test.mistakes {
				if !strings.Contains(told, want) {
					t.Errorf("told %q, which lacks %q", told, want)
				}
			}
			if len(test.mistakes) == 0 && told != "" {
				t.Errorf("told %q of a configuration that is right", told)
			}
			if got := c.IsMistaken("channels"); got != test.owners {
				t.Errorf("IsMistaken(channels) = %t, want %t", got, test.owners)
			}
			if c.Gateway.Location == nil || c.Store.Path() == "" || c.Gateway.Home == "" {
				t.Errorf("gateway %+v and store %+v are not complete", c.Gateway, c.Store)
			}
		})
	}
}
