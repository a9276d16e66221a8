package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// explainText returns the explanation of a configuration file with this content.
func explainText(t *testing.T, content string, environ []string) *Explanation {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "config.toml", content)
	c, err := LoadWithoutSecrets("config.toml", environ)
	if err != nil {
		t.Fatal(err)
	}
	return c.Explain()
}

func TestExplanation(t *testing.T) {
	e := explainText(t, `[agent]
slots = 3
turn_timeout = "90s"

[models."gpt-5.4"]
model = "x"
key = "literal-key"
base_url = "https://user:password@host/v1"

[channels.bot]
type = "telegram"
token = "env:BOT"
allow = [1, "a\"b"]

[tools.exec]

[mcp.x]
command = ["x", "--key=literal-key"]
`, environ(t, "BOT=bot-token", "GATEWAY_AGENT__SLOTS=4", "GATEWAY_PORT=80", "GATEWAY_X=1",
		"OPENAI_API_KEY=openai-key", "OPENAI_MODEL=m", "UNUSED=1"))
	want := `[agent]
model = "gpt-5.4" # chosen, because none is named
slots = 4 # variable GATEWAY_AGENT__SLOTS
turn_timeout = "1m30s" # config.toml:3

[models."gpt-5.4"]
model = "x" # config.toml:6
# base_url: redacted, from config.toml:8
# key: redacted, from config.toml:7

[models.openai]
model = "m" # variable OPENAI_MODEL
base_url = "https://api.openai.com/v1" # variable OPENAI_API_KEY
key = "env:OPENAI_API_KEY" # variable OPENAI_API_KEY

[channels.bot]
type = "telegram" # config.toml:11
token = "env:BOT" # config.toml:12
allow = ["1", "a\"b"] # config.toml:13

[tools.exec]

[mcp.x]
# command: redacted, from config.toml:18
`
	if got := e.TOML(false); got != want {
		t.Errorf("TOML(false) is\n%s\nwant\n%s", got, want)
	}
	for _, line := range []string{`queue_mode = "steer" # default`, `idle = "30m" # default`,
		`ceiling_in = 15.0 # default`, `env = [] # default`, `[channels.terminal]`} {
		if !strings.Contains(e.TOML(true), line+"\n") {
			t.Errorf("TOML(true) lacks %s:\n%s", line, e.TOML(true))
		}
	}
	wantVars := []string{"BOT", "GATEWAY_AGENT__SLOTS", "OPENAI_API_KEY", "OPENAI_MODEL"}
	if !slices.Equal(e.Variables, wantVars) {
		t.Errorf("Variables = %q, want %q", e.Variables, wantVars)
	}
	if want := []string{"GATEWAY_PORT", "GATEWAY_X"}; !slices.Equal(e.Ignored, want) {
		t.Errorf("Ignored = %q, want %q", e.Ignored, want)
	}
	if !e.Literal {
		t.Error("the credential in the file is not noticed")
	}
	if e := explainText(t, "[models.demo]\nkey = 'env:K'\n", environ(t, "K=key")); e.Literal {
		t.Error("a reference counts as a credential in the file")
	}
}

// TestExplanationMeansTheSame checks that the printed explanation, read as a file, gives the same
// configuration.
func TestExplanationMeansTheSame(t *testing.T) {
	_, full := readExample(t)
	env := environ(t, "OPENAI_API_KEY=key", "TELEGRAM_BOT_TOKEN=token", "DISCORD_BOT_TOKEN=token2",
		"FILES_API_KEY=key", "FILES_AUTHORIZATION=header", "DEPLOYS_SECRET=deploys-deploys-",
		"PROXY_AUTHORIZATION=header", "OTLP_AUTHORIZATION=header", "GATEWAY_AGENT__WAITING=7")
	for name, file := range map[string]string{
		"none": "",
		"full": full,
		"odd": "[gateway]\nname = \"\\\"quo\\\\ted\\\" \\u0007\\n\\u007f ü\"\n" +
			"[models.\"gpt-5.4\"]\nmodel = \"m\"\n[models.b]\nmodel = \"m\"\nfallback = [\"gpt-5.4\"]\n" +
			"[agent]\nmodel = \"b\"\n[log]\nlevel = \"WARN\"\n" +
			"[channels.w]\ntype = \"whatsapp\"\ndebounce = \"1h0m0.5s\"\n[roots.\"a.b\"]\npath = \"/x\"\n",
	} {
		want := mustLoad(t, file, env)
		for _, all := range []bool{false, true} {
			text := explainText(t, file, env).TOML(all)
			got, err := load(t, text, env)
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, text)
			}
			if keys := Changed(want, got); len(keys) > 0 {
				t.Errorf("%s: what is printed changes %q:\n%s", name, keys, text)
			}
		}
	}
}

// kindsOfSecrets is the number of kinds of credentials in everySecret, where they are <1> and so
// on.
const kindsOfSecrets = 15

// everySecret is a configuration with every kind of credential.
const everySecret = `
[transcription]
model = "whisper-1"
key = "<1>"
[media.speech]
model = "tts-1"
key = "<12>"
[media.images]
model = "gpt-image-1"
key = "<15>"
[web]
search = "brave"
search_key = "<2>"
[http]
token = "<3>"
[models.main]
model = "m"
key = "<5>"
[models.main.headers]
KEY = "<11>"
[channels.telegram]
token = "<6>"
proxy = "http://user:<7>@proxy"
webhook_url = "https://bot.example.org/<6>"
webhook_secret = "<8>"
[mcp.x]
command = ["x", "--key", "<9>"]
[mcp.x.env]
KEY = "<9>"
[mcp.y]
url = "https://y.example.org"
client_secret = "<13>"
private_key = "<14>"
[mcp.y.headers]
KEY = "<10>"
[hooks.z]
to = "telegram/1"
secret = "<4>"
template = "<4> {{ a }}"
`

// TestExplanationHasNoSecret checks that no kind of credential is printed.
func TestExplanationHasNoSecret(t *testing.T) {
	env := environ(t)
	t.Chdir(t.TempDir())
	rapid.Check(t, func(r *rapid.T) {
		// Some secrets begin similarly to a reference.
		word := rapid.StringMatching(`(env-|file-|sk_)?[A-Za-z0-9_-]{16,40}`)
		secrets, file := make([]string, kindsOfSecrets), everySecret
		for i := range secrets {
			secrets[i] = word.Draw(r, fmt.Sprint("secret", i+1))
			file = strings.ReplaceAll(file, fmt.Sprintf("<%d>", i+1), secrets[i])
		}
		write(t, "config.toml", file)
		c, err := LoadWithoutSecrets("config.toml", env)
		if err != nil {
			r.Fatal(err)
		}
		e := c.Explain()
		asJSON, err := json.Marshal(e.Tables)
		if err != nil {
			r.Fatal(err)
		}
		shown := e.TOML(true) + string(asJSON)
		for _, secret := range secrets {
			if strings.Contains(shown, secret) {
				r.Fatalf("%s shows in\n%s", secret, shown)
			}
		}
		if n := len(e.Config.Secrets()); n != kindsOfSecrets {
			r.Fatalf("%d credentials were read, want %d", n, kindsOfSecrets)
		}
	})
}

// TestEverySecretIsTried checks that TestExplanationHasNoSecret tries every kind of credential.
func TestEverySecretIsTried(t *testing.T) {
	count := 0
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		switch {
		case typ == secretType:
			count++
		case typ.Kind() == reflect.Struct:
			for _, f := range fields(typ) {
				walk(f.typ)
			}
		case typ.Kind() == reflect.Map:
			walk(typ.Elem())
		}
	}
	walk(reflect.TypeFor[Config]())
	if count != kindsOfSecrets {
		t.Errorf("a configuration has %d kinds of credentials, everySecret %d", count, kindsOfSecrets)
	}
}

// A secret in the file is found and hidden in every table, even in a list or in a section that is
// not used.
func TestLiteralSecrets(t *testing.T) {
	e := explainText(t, `[models.a]
model = "x"
base_url = "https://host/v1"
keys = ["literal-a"]

[channels.bot]
type = "telegram"
enabled = false
token = "literal-b"

[mcp.tools]
enabled = false
client_secret = "literal-c"
private_key = "file:key.pem"
`, environ(t))
	text := e.TOML(true)
	for _, key := range []string{"keys", "token", "client_secret"} {
		if !strings.Contains(text, "# "+key+": redacted") {
			t.Errorf("%s is not said to be redacted:\n%s", key, text)
		}
	}
	if strings.Contains(text, "literal-") || !e.Literal {
		t.Errorf("literal is %t:\n%s", e.Literal, text)
	}
	got, err := SecretsIn("config.toml")
	want := []Written{{"channels.bot.token", "literal-b"}, {"mcp.tools.client_secret", "literal-c"},
		{"mcp.tools.private_key", "file:key.pem"}, {"models.a.keys.0", "literal-a"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the secrets are %v, %v, want %v", got, err, want)
	}
}
