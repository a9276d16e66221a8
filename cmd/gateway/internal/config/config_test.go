package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// environ returns an environment with a home directory and the variables in more.
func environ(t *testing.T, more ...string) []string {
	return append([]string{"HOME=" + t.TempDir()}, more...)
}

// load returns the configuration of a file with this content.
func load(t *testing.T, content string, environ []string) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "config.toml", content)
	return Load("config.toml", environ)
}

func mustLoad(t *testing.T, content string, environ []string) *Config {
	t.Helper()
	c, err := load(t, content, environ)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDefaults(t *testing.T) {
	env := environ(t)
	c, err := Load("", env)
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(strings.TrimPrefix(env[0], "HOME="), ".gateway")
	if c.Gateway.Home != home || c.Gateway.Workspace != filepath.Join(home, "workspace") {
		t.Errorf("gateway = %+v, want it in %s", c.Gateway, home)
	}
	if want := filepath.Join(home, "gateway.db"); c.Store.Path() != want {
		t.Errorf("store is at %s, want %s", c.Store.Path(), want)
	}
	if c.Gateway.Location != time.Local {
		t.Errorf("location is %v, want the machine's", c.Gateway.Location)
	}
	if c.Agent.Model != "demo" || c.Models["demo"].Provider != "demo" || len(c.Models) != 1 {
		t.Errorf("model %q of %v, want only the demo", c.Agent.Model, c.Models)
	}
	want := Channel{
		Type: "terminal", Enabled: true, Access: "open", Streaming: true, RateLimit: "platform",
		Activation: "mention", SenderRate: 30, Reaction: "👀", Session: "chat",
		Telegram: Telegram{WebhookListen: "127.0.0.1:8443"}, Shards: 1,
		Allow: []string{}, Owners: []string{}, Groups: []string{},
	}
	got := c.Channels["terminal"]
	got.Token, got.Proxy, got.WebhookSecret = Secret{}, Secret{}, Secret{}
	if !reflect.DeepEqual(got, want) || len(c.Channels) != 1 {
		t.Errorf("channels = %+v, want only %+v", c.Channels, want)
	}
}

func TestHomeFile(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "config.toml"), "[agent]\nslots = 3\n")
	c, err := Load("", []string{"GATEWAY_HOME=" + home})
	if err != nil {
		t.Fatal(err)
	}
	if c.Gateway.Home != home || c.Agent.Slots != 3 {
		t.Errorf("home %s, slots %d; want %s, 3", c.Gateway.Home, c.Agent.Slots, home)
	}
	if _, err := Load(filepath.Join(home, "missing.toml"), nil); err == nil {
		t.Error("Load of a named file that is missing succeeded")
	}
}

// Files with the byte order mark of a Windows editor, or in UTF-16, are read like others.
func TestMarkedFiles(t *testing.T) {
	for name, encode := range map[string]func(string) string{
		"UTF-8": func(s string) string { return "\xef\xbb\xbf" + s },
		"UTF-16": func(s string) string {
			return "\xff\xfe" + strings.Join(strings.Split(s, ""), "\x00") + "\x00"
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			file := filepath.Join(home, "config.toml")
			write(t, filepath.Join(home, "key"), encode("secret\r\n"))
			write(t, file, encode("[models.demo]\r\nkey = 'file:key'\r\n"))
			c, err := Load(file, []string{"GATEWAY_HOME=" + home})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Models["demo"].Key.Reveal(); got != "secret" {
				t.Errorf("key = %q", got)
			}
			written, err := SecretsIn(file)
			if err != nil || len(written) != 1 {
				t.Errorf("SecretsIn = %v, %v", written, err)
			}
		})
	}
}

// Without a provider, the address tells the protocol, as docs/models.md says.
func TestProviderByAddress(t *testing.T) {
	for file, want := range map[string]string{
		"base_url = 'https://api.anthropic.com/v1'":                      "anthropic",
		"base_url = 'https://api.anthropic.com/'":                        "anthropic",
		"base_url = 'https://api.anthropic.com/v1'\nprovider = 'openai'": "openai",
		"base_url = 'http://127.0.0.1:1/v1'":                             "openai",
		"":                                                               "openai",
	} {
		c := mustLoad(t, "[models.own]\nmodel = 'm'\n"+file, environ(t))
		if got := c.Models["own"].Provider; got != want {
			t.Errorf("%s: provider = %q, want %q", file, got, want)
		}
	}
}

// The address of a request, as providers' examples show it, is as good as its base.
func TestAddressOfRequest(t *testing.T) {
	c := mustLoad(t, "[agent]\nmodel = \"own\"\n"+
		"[models.own]\nmodel = \"m\"\nbase_url = \"http://a/v1/chat/completions/\"\n"+
		"[models.claude]\nmodel = \"m\"\nbase_url = \"https://api.anthropic.com/v1/messages\"\n"+
		"[transcription]\nmodel = \"w\"\nbase_url = \"http://a/v1/audio/transcriptions\"\n"+
		"[media.speech]\nmodel = \"s\"\nbase_url = \"http://a/chat/v1\"\n",
		environ(t, "OPENAI_API_KEY=k", "OPENAI_BASE_URL=http://b/chat/completions"))
	claude := c.Models["claude"]
	got := []string{c.Models["own"].BaseURL, claude.BaseURL, claude.Provider,
		c.Models["openai"].BaseURL, c.Transcription.BaseURL, c.Media.Speech.BaseURL}
	want := []string{"http://a/v1", "https://api.anthropic.com/v1", "anthropic", "http://b",
		"http://a/v1", "http://a/chat/v1"}
	if !slices.Equal(got, want) {
		t.Errorf("addresses are %q, want %q", got, want)
	}
}

// Variables from a file with the line ends of Windows have the values that people see there.
func TestVariablesOfWindowsFile(t *testing.T) {
	c := mustLoad(t, "", environ(t, "OPENAI_API_KEY=k\r", "OPENAI_MODEL=gpt-x\r",
		"OPENAI_BASE_URL=http://127.0.0.1:1/v1\r", "GATEWAY_LOG__LEVEL=debug\r",
		"GATEWAY_AGENT__SLOTS=7\r"))
	m := c.Models["openai"]
	if m.Model != "gpt-x" || m.BaseURL != "http://127.0.0.1:1/v1" || m.Key.Reveal() != "k" ||
		c.Log.Level != slog.LevelDebug || c.Agent.Slots != 7 {
		t.Errorf("model %q at %q, log level %q, %d slots", m.Model, m.BaseURL, c.Log.Level,
			c.Agent.Slots)
	}
}

func TestEnvironmentOverFile(t *testing.T) {
	c := mustLoad(t, `
[agent]
slots = 3
waiting = 4
[models."gpt-5.4"]
model = "x"
[channels.My-Bot]
type = "telegram"
token = "T"
allow = [1, "2"]
`, environ(t,
		"GATEWAY_AGENT__SLOTS=8",
		"GATEWAY_AGENT__TURN_TIMEOUT=90s",
		"GATEWAY_LOG__LEVEL=debug",
		"GATEWAY_MODELS__GPT_5_4__PRICE_IN=1",
		"GATEWAY_MODELS__NEW__MODEL=y",
		"GATEWAY_MODELS__NEW__PROVIDER=openai",
		"GATEWAY_AGENT__MODEL=new",
		"GATEWAY_CHANNELS__MY_BOT__OWNERS= 5, 6 ",
		"GATEWAY_CHANNELS__MY_BOT__STREAMING=false",
		"GATEWAY_PORT=tcp://10.0.0.1:80", // as Kubernetes sets it
	))
	if c.Agent.Slots != 8 || c.Agent.Waiting != 4 || c.Agent.TurnTimeout != 90*time.Second {
		t.Errorf("agent = %+v", c.Agent)
	}
	if c.Log.Level.String() != "DEBUG" || c.Agent.Model != "new" {
		t.Errorf("level %v, model %q", c.Log.Level, c.Agent.Model)
	}
	if m := c.Models["gpt-5.4"]; m.PriceIn != 1 || m.Model != "x" || m.ContextWindow != 128_000 {
		t.Errorf("models.gpt-5.4 = %+v", m)
	}
	ch := c.Channels["My-Bot"]
	if !slices.Equal(ch.Owners, []string{"5", "6"}) || !slices.Equal(ch.Allow, []string{"1", "2"}) {
		t.Errorf("owners %q, allow %q", ch.Owners, ch.Allow)
	}
	if ch.Streaming || !ch.Enabled || ch.Access != "pairing" {
		t.Errorf("channel = %+v", ch)
	}
}

func TestShorthand(t *testing.T) {
	tests := []struct {
		name, file string
		env        []string
		want       string // the agent's model: name, provider's name, server
	}{
		{"none", "", nil, "demo  "},
		{"one", "", []string{"DEEPSEEK_API_KEY=k"},
			"deepseek deepseek-v4-flash https://api.deepseek.com"},
		{"first", "", []string{"ANTHROPIC_API_KEY=k", "OPENAI_API_KEY=k"},
			"openai gpt-5.4-mini https://api.openai.com/v1"},
		{"empty", "", []string{"OPENAI_API_KEY="}, "demo  "},
		{"other server", "",
			[]string{"OPENAI_API_KEY=k", "OPENAI_BASE_URL=http://x/v1", "OPENAI_MODEL=m"},
			"openai m http://x/v1"},
		{"file's model", "[models.a]\nmodel='m'\nbase_url='http://a'\n", []string{"OPENAI_API_KEY=k"},
			"a m http://a"},
		{"set", "[agent]\nmodel='openrouter'\n",
			[]string{"OPENAI_API_KEY=k", "OPENROUTER_API_KEY=k"},
			"openrouter openrouter/auto https://openrouter.ai/api/v1"},
		{"file over shorthand", "[models.openai]\nmodel='m'\n", []string{"OPENAI_API_KEY=k"},
			"openai m https://api.openai.com/v1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := mustLoad(t, tt.file, environ(t, tt.env...))
			m := c.Models[c.Agent.Model]
			if got := c.Agent.Model + " " + m.Model + " " + m.BaseURL; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestShorthandLimits(t *testing.T) {
	c := mustLoad(t, "", environ(t, "OPENAI_API_KEY=k"))
	m := c.Models["openai"]
	if m.ContextWindow != 400_000 || m.PriceOut != 4.5 || m.Key.Reveal() != "k" {
		t.Errorf("openai = %+v", m)
	}
	c = mustLoad(t, "", environ(t, "OPENAI_API_KEY=k", "OPENAI_MODEL=other"))
	if m := c.Models["openai"]; m.ContextWindow != 128_000 || m.PriceOut != 0 {
		t.Errorf("limits of another model = %+v", m)
	}
}

func TestTelegramToken(t *testing.T) {
	env := environ(t, "TELEGRAM_BOT_TOKEN=T")
	c := mustLoad(t, "", env)
	ch := c.Channels["telegram"]
	if ch.Token.Reveal() != "T" || ch.Access != "pairing" || !ch.Enabled {
		t.Errorf("channels.telegram = %+v", ch)
	}
	c = mustLoad(t, "[channels.bot]\ntype='telegram'\ntoken='env:TELEGRAM_BOT_TOKEN'\n", env)
	if _, ok := c.Channels["telegram"]; ok {
		t.Error("a bot that the file names is configured twice")
	}
	c = mustLoad(t, "[channels.telegram]\nenabled=false\ntoken='env:UNSET'\n", environ(t))
	if got := c.Channels["telegram"].Token.Reveal(); got != "" {
		t.Errorf("token of a disabled channel = %q, want none", got)
	}
}

// A WhatsApp account shows no growing answers unless the configuration says so, because WhatsApp
// marks each edit.
func TestStreamingByType(t *testing.T) {
	for file, want := range map[string]bool{
		"[channels.whatsapp]\n":                                false,
		"[channels.w]\ntype = 'whatsapp'\n":                    false,
		"[channels.w]\ntype = 'whatsapp'\nstreaming = true\n":  true,
		"[channels.w]\ntype = 'telegram'\ntoken = 't'\n":       true,
		"[channels.whatsapp]\ntype = 'discord'\ntoken = 't'\n": true,
		"[channels.discord]\nstreaming = false\ntoken = 't'\n": false,
	} {
		c := mustLoad(t, file, environ(t))
		for name, ch := range c.Channels {
			if name != "terminal" && ch.Streaming != want {
				t.Errorf("%q: streaming = %v, want %v", file, ch.Streaming, want)
			}
		}
	}
}

// The usual variables configure an account of a platform, unless the file has one.
func TestBotTokens(t *testing.T) {
	env := environ(t, "TELEGRAM_BOT_TOKEN=t", "DISCORD_BOT_TOKEN=d")
	c := mustLoad(t, "", env)
	if c.Channels["telegram"].Token.Reveal() != "t" || c.Channels["discord"].Token.Reveal() != "d" {
		t.Errorf("channels = %+v", c.Channels)
	}
	c = mustLoad(t, "[channels.server]\ntype = 'discord'\ntoken = 'env:DISCORD_BOT_TOKEN'\n", env)
	if _, ok := c.Channels["discord"]; ok || len(c.Channels) != 3 {
		t.Errorf("channels = %+v", c.Channels)
	}
}

// TestProviders checks that the key of a known provider is enough to use it. With several keys,
// the provider is used that the documentation names first.
func TestProviders(t *testing.T) {
	var keys []string
	for _, p := range providers {
		c := mustLoad(t, "", environ(t, p.Variable("_API_KEY")+"=k"))
		m := c.Models[p.Name]
		if c.Agent.Model != p.Name || m.Model != p.Model || m.BaseURL != p.BaseURL ||
			m.Key.Reveal() != "k" || m.ContextWindow != p.window {
			t.Errorf("with the key of %s the agent has %q, which is %+v", p.Name, c.Agent.Model, m)
		}
		keys = append(keys, p.Variable("_API_KEY")+"=k")
	}
	if c := mustLoad(t, "", environ(t, keys...)); c.Agent.Model != "openai" {
		t.Errorf("with all keys the agent has %q", c.Agent.Model)
	}
}

// A size so large that it can't be counted in bytes is a mistake. The sizes would be negative, and
// the gateway would remove all files of conversations at once.
func TestSizesFitInBytes(t *testing.T) {
	const tooLarge = "9223372036854775807"
	for table, keys := range map[string][]string{
		"log": {"file_mb"}, "media": {"max_file_mb", "max_total_mb"}, "retention": {"max_total_mb"},
		"exec": {"memory_mb", "disk_mb", "keep_free_mb"}, "hooks.x": {"max_kb"}, "agent": {"slots"},
	} {
		for _, key := range keys {
			_, err := load(t, "["+table+"]\n"+key+" = "+tooLarge+"\n", environ(t))
			if want := table + "." + key + ": want at most 1000000"; err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s.%s = %s: got the error %v, want %q", table, key, tooLarge, err, want)
			}
		}
	}
}

// An address to listen on whose port does not exist is a mistake. The gateway would otherwise try
// for ever to listen there.
func TestListenPorts(t *testing.T) {
	for port, valid := range map[string]bool{"0": true, "8790": true, "65535": true, "65536": false,
		"99999": false, "-1": false, "http2go": false} {
		_, err := load(t, "[http]\nlisten = \"127.0.0.1:"+port+"\"\n", environ(t))
		if ok := err == nil; ok != valid {
			t.Errorf("port %s: got the error %v, want one: %t", port, err, !valid)
		}
	}
}
