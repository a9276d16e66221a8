package config

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

const exampleFile = "../../../../config.toml.example"

var commentedKey = regexp.MustCompile(`(?m)^#([A-Za-z_]+ = |\[)`)

// readExample returns the example file as it is, and with the comment signs before all keys
// removed.
func readExample(t *testing.T) (plain, full string) {
	b, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), commentedKey.ReplaceAllString(string(b), "$1")
}

func TestExampleShowsEveryKey(t *testing.T) {
	_, full := readExample(t)
	var tables map[string]any
	if err := toml.Unmarshal([]byte(full), &tables); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, root, "", tables)
}

// wantKeys reports the keys of m that are missing in table. A table of named entries must have at
// least one entry.
func wantKeys(t *testing.T, m member, path string, table map[string]any) {
	t.Helper()
	keys := m.keys()
	if m.typ.Kind() == reflect.Map {
		for name := range table {
			keys = append(keys, name)
		}
		if len(keys) == 0 {
			t.Errorf("%s shows no entry", path)
		}
	}
	for _, key := range keys {
		child, err := m.child(key)
		if err != nil {
			t.Errorf("%s.%s: %v", path, key, err)
			continue
		}
		v, ok := table[key]
		if !ok {
			t.Errorf("%s.%s does not show", path, key)
		}
		if child.table() {
			sub, _ := v.(map[string]any)
			wantKeys(t, child, path+"."+key, sub)
		}
	}
}

// TestExampleShowsDefaults checks that the commented keys of the example have the default values.
// Only keys without a default differ, such as the model's name and the credentials.
func TestExampleShowsDefaults(t *testing.T) {
	plain, full := readExample(t)
	env := environ(t, "OPENAI_API_KEY=key", "TELEGRAM_BOT_TOKEN=token",
		"FILES_API_KEY=key", "FILES_AUTHORIZATION=header", "DEPLOYS_SECRET=deploys-deploys-",
		"OTLP_AUTHORIZATION=header", "PROXY_AUTHORIZATION=header")
	got := mustLoad(t, full, env)

	want := mustLoad(t, plain+`
[models.main]
model = "gpt-5.4-mini"
key = "env:OPENAI_API_KEY"
[models.main.body]
top_p = 0.9
[models.main.headers]
Authorization = "env:PROXY_AUTHORIZATION"
[tools.exec]
[personas.tutor]
[policies.family]
accounts = ["telegram"]
chats = ["telegram/-1001234567890"]
people = ["telegram/123456789"]
[roots.notes]
path = "/srv/notes"
[mcp.files]
command = ["mcp-server-files", "."]
[mcp.files.env]
API_KEY = "env:FILES_API_KEY"
[mcp.files.headers]
Authorization = "env:FILES_AUTHORIZATION"
[hooks.deploys]
to = "telegram/123456789"
secret = "env:DEPLOYS_SECRET"
`, env)
	got.origins, want.origins = origins{}, origins{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with every key switched on the example is\n%+v\nwant\n%+v", got, want)
	}
	got, want = mustLoad(t, plain, env[:1]), mustLoad(t, "", env[:1])
	got.origins, want.origins = origins{}, origins{}
	got.content = false // want has an empty file
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example is\n%+v\nwant\n%+v", got, want)
	}
}
