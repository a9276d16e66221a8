package config

import (
	"maps"
	"strings"
	"testing"
)

// TestBody checks that an additional field of requests can have any type, in the file and in a
// variable, and that the output of `config show` means the same when it is read again.
func TestBody(t *testing.T) {
	const file = `[models.a]
model = "m"
[models.a.body]
top_p = 0.9
stop = ["a/b", "\"c\""]
logprobs = true
provider = { order = ["x"], "sort/by" = { price = 1 } }
`
	env := environ(t, "GATEWAY_MODELS__A__BODY__SEED=7", "GATEWAY_MODELS__A__BODY__USER=ann",
		"GATEWAY_MODELS__A__BODY__NIL=null",
		`GATEWAY_MODELS__A__BODY__EXTRA={"deep": [1, {}]}`)
	want := map[string]JSON{
		"top_p": "0.9", "stop": `["a/b","\"c\""]`, "logprobs": "true",
		"provider": `{"order":["x"],"sort/by":{"price":1}}`,
		"seed":     "7", "user": `"ann"`, "nil": `"null"`, "extra": `{"deep":[1,{}]}`,
	}
	if got := mustLoad(t, file, env).Models["a"].Body; !maps.Equal(got, want) {
		t.Errorf("the body has %q, want %q", got, want)
	}

	write(t, "config.toml", file)
	c, err := LoadWithoutSecrets("config.toml", environ(t))
	if err != nil {
		t.Fatal(err)
	}
	shown := c.Explain().TOML(false)
	if !strings.Contains(shown, `provider = {order = ["x"], "sort/by" = {price = 1.0}} # config`) {
		t.Errorf("shown is\n%s", shown)
	}
	again := mustLoad(t, shown, environ(t)).Models["a"].Body
	for _, name := range []string{"seed", "user", "nil", "extra"} {
		delete(want, name)
	}
	if !maps.Equal(again, want) {
		t.Errorf("what is shown means %q, want %q", again, want)
	}
}

// TestNamesInVariables checks that a variable sets the variable of an MCP server, the header or the
// field that the file has, or a new one with a name that programs and servers know.
func TestNamesInVariables(t *testing.T) {
	const file = `[mcp.github]
command = ["github"]
env = { GITHUB_TOKEN = "old", http_proxy = "http://a", _JAVA_OPTIONS = "-Xmx1g" }
[models.a]
model = "m"
headers = { X-Api-Key = "old" }
body = { enableThinking = true }
`
	c := mustLoad(t, file, environ(t, "GATEWAY_MCP__GITHUB__ENV__GITHUB_TOKEN=new",
		"GATEWAY_MCP__GITHUB__ENV__HTTP_PROXY=http://b", "GATEWAY_MCP__GITHUB__ENV__GITHUB_HOST=c",
		"GATEWAY_MODELS__A__HEADERS__X_API_KEY=new", "GATEWAY_MODELS__A__HEADERS__X_ORG_ID=d",
		"GATEWAY_MODELS__A__BODY__ENABLETHINKING=false"))
	for _, table := range []struct {
		name      string
		got, want map[string]string
	}{
		{"env", revealed(c.MCP["github"].Env), map[string]string{"GITHUB_TOKEN": "new",
			"http_proxy": "http://b", "GITHUB_HOST": "c", "_JAVA_OPTIONS": "-Xmx1g"}},
		{"headers", revealed(c.Models["a"].Headers), map[string]string{"X-Api-Key": "new",
			"X-ORG-ID": "d"}},
	} {
		if !maps.Equal(table.got, table.want) {
			t.Errorf("%s has %q, want %q", table.name, table.got, table.want)
		}
	}
	if got := c.Models["a"].Body; !maps.Equal(got, map[string]JSON{"enableThinking": "false"}) {
		t.Errorf("the body has %q", got)
	}
}

func revealed(secrets map[string]Secret) map[string]string {
	plain := make(map[string]string, len(secrets))
	for name, s := range secrets {
		plain[name] = s.Reveal()
	}
	return plain
}
