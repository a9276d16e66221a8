package config

import (
	"strings"
	"testing"
)

var brokenTests = []struct {
	name, file string
	env        []string
	want       string // lines of the error
}{
	{name: "syntax", file: "[agent]\nslots = = 3 # hunter2\n",
		want: "config.toml:2: unexpected character U+003D '=' at start of value"},
	{name: "duplicate", file: "[log]\nlevel='info'\nlevel='warn'\n",
		want: "config.toml:3: key level is already defined"},
	{name: "unknown section", file: "[agnet]\nslots = 1\n",
		want: `config.toml:1: agnet: unknown key; did you mean "agent"?`},
	{name: "unknown key", file: "[agent]\n\nslotz = 1\n",
		want: `config.toml:3: agent.slotz: unknown key; did you mean "slots"?`},
	{name: "no such key at all", file: "[agent]\ncolour = 1\n",
		want: "config.toml:2: agent.colour: unknown key; want one of model, slots, max_rounds, " +
			"task_model, task_rounds, turn_timeout, queue_mode, waiting, activity"},
	{name: "case counts", file: "[agent]\nSlots = 1\n",
		want: `config.toml:2: agent.Slots: unknown key; did you mean "slots"?`},
	{name: "unknown key inline", file: "models.a = { model = 'm',\n  maxoutput = 1 }\n",
		want: `config.toml:2: models.a.maxoutput: unknown key; did you mean "max_output"?`},
	{name: "not a table", file: "agent = 1\n",
		want: "config.toml:1: agent: want a table, [agent]"},
	{name: "array of tables", file: "[[agent]]\nslots = 1\n",
		want: "config.toml:1: agent: want a table, [agent]"},
	{name: "string for int", file: "[agent]\nslots = '8'\n",
		want: `config.toml:2: agent.slots: want a whole number, not "8"`},
	{name: "float for int", file: "[agent]\nslots = 1.5\n",
		want: "config.toml:2: agent.slots: want a whole number, not 1.5"},
	{name: "table for int", file: "[agent.slots]\nx = 1\n",
		want: "config.toml:1: agent.slots: want a whole number, not a table"},
	{name: "int for string", file: "[gateway]\nname = 5\n",
		want: "config.toml:2: gateway.name: want a string, not 5"},
	{name: "string for list", file: "[channels.terminal]\nallow = 'me'\n",
		want: `config.toml:2: channels.terminal.allow: want a list such as ["a", "b"], not "me"`},
	{name: "bad list", file: "[channels.terminal]\nallow = [true]\n",
		want: "config.toml:2: channels.terminal.allow: want a list of strings, not true"},
	{name: "string for bool", file: "[channels.terminal]\nenabled = 'yes'\n",
		want: `config.toml:2: channels.terminal.enabled: want true or false, not "yes"`},
	{name: "negative", file: "[agent]\nwaiting = -1\n",
		want: "config.toml:2: agent.waiting: want at least 1, not -1"},
	{name: "no number", file: "[models.demo]\nprice_in = nan\n",
		want: "config.toml:2: models.demo.price_in: want a number, not NaN"},
	{name: "duration", file: "[agent]\nturn_timeout = '15'\n",
		want: `config.toml:2: agent.turn_timeout: want a duration such as "1m30s", not "15"`},
	{name: "duration number", file: "[agent]\nturn_timeout = 900\n",
		want: `config.toml:2: agent.turn_timeout: want a duration such as "1m30s", not 900`},
	{name: "negative duration", file: "[channels.terminal]\ndebounce = '-1s'\n",
		want: `config.toml:2: channels.terminal.debounce: want at least 0s, not "-1s"`},
	{name: "temperature", file: "[models.a]\nmodel = 'm'\ntemperature = 3\n",
		want: "config.toml:3: models.a.temperature: want at most 2, not 3"},
	{name: "no header", file: "[hooks.a]\nto = 'terminal/main'\nsecret = '0123456789abcdef'\n" +
		"auth = 'hmac'\nheader = 'X-Signature:'\n",
		want: `config.toml:5: hooks.a.header: want the name of the header with the signature, such as ` +
			`"X-Hub-Signature-256"`},
	{name: "field of the gateway", file: "[models.a]\nmodel = 'm'\n[models.a.body]\nmax_tokens = 3\n",
		want: "config.toml:4: models.a.body.max_tokens: the gateway sets this field itself; " +
			"use max_output"},
	{name: "field without JSON", file: "[models.a]\nmodel = 'm'\n[models.a.body]\nx = nan\n",
		want: "config.toml:4: models.a.body.x: want a value that JSON can express, not NaN"},
	{name: "policy of nobody", file: "[policies.p]\ndeny = ['exec']\n",
		want: "config.toml:1: policies.p: want accounts, chats or people that it applies to"},
	{name: "policy of unknown places", file: "[policies.p]\naccounts = ['terminl']\n" +
		"chats = ['telgram/1']\npeople = ['ann']\n[policies.q]\nchats = ['terminal']\n" +
		"people = ['7', 'termial/7']\n",
		want: `config.toml:2: policies.p.accounts: there is no [channels.terminl]; did you mean ` +
			"\"terminal\"?\n" +
			"config.toml:3: policies.p.chats: there is no [channels.telgram]\n" +
			`config.toml:4: policies.p.people: want account/id or the number of a person, not "ann"` +
			"\n" + `config.toml:6: policies.q.chats: want account/chat, not "terminal"` + "\n" +
			`config.toml:7: policies.q.people: there is no [channels.termial]; did you mean "terminal"?`},
	{name: "policy with unknown names", file: "[personas.tutor]\nmodel = 'dmo'\n" +
		"tools = ['web_*', 'mcp_x_*']\n[policies.p]\naccounts = ['terminal']\npersona = 'tuto'\n" +
		"model = 'dem'\nask = ['exce']\n",
		want: `config.toml:2: personas.tutor.model: there is no [models.dmo]; did you mean "demo"?` +
			"\n" + `config.toml:3: personas.tutor.tools: there is no tool "mcp_x_*"; docs/tools.md ` +
			"lists them, and those of [mcp.SERVER] are called mcp_SERVER_TOOL\n" +
			`config.toml:6: policies.p.persona: there is no [personas.tuto]; did you mean "tutor"?` +
			"\n" + `config.toml:7: policies.p.model: there is no [models.dem]; did you mean "demo"?` +
			"\n" + `config.toml:8: policies.p.ask: there is no tool "exce"; docs/tools.md lists them, ` +
			`and those of [mcp.SERVER] are called mcp_SERVER_TOOL; did you mean "exec"?`},
	{name: "level", file: "[log]\nlevel = 'loud'\n",
		want: `config.toml:2: log.level: want debug, info, warn or error, not "loud"`},
	{name: "one of", file: "[log]\nformat = 'jsno'\n",
		want: `config.toml:2: log.format: want auto, text or json, not "jsno"; did you mean "json"?`},
	{name: "Discord token", file: "[channels.discord]\ntoken = 'Bot abc'\n",
		want: `config.toml:2: channels.discord.token: want the token alone, without "Bot " before it ` +
			"and without blanks"},
	{name: "Discord channel", file: "[channels.discord]\ntoken = 'abc'\ngroups = ['general']\n",
		want: `config.toml:3: channels.discord.groups: want the numbers of channels, not "general": in ` +
			"Discord's settings switch on Developer Mode, then Copy Channel ID from the channel's menu"},
	{name: "zone", file: "[gateway]\ntimezone = 'Europe/Nowhere'\n",
		want: `config.toml:2: gateway.timezone: ` +
			`want a zone such as "Europe/Berlin", "UTC" or "Local", not "Europe/Nowhere"`},
	{name: "workspace", file: "[gateway]\nhome = '/srv/data/home'\nworkspace = '/srv/data'\n",
		want: "config.toml:3: gateway.workspace: this is or contains the data directory, where the " +
			"gateway's secrets and everybody's memories are"},
	{name: "postgres", file: "[store]\nurl = 'postgres://u:hunter2@h/db'\n",
		want: "config.toml:2: store.url: " +
			`PostgreSQL is not supported by this version; want "sqlite:PATH"`},
	{name: "store", file: "[store]\nurl = 'mysql://u:hunter2@h/db'\n",
		want: `config.toml:2: store.url: want "sqlite:PATH"`},
	{name: "model", file: "[agent]\nmodel = 'dmeo'\n",
		want: `config.toml:2: agent.model: there is no [models.dmeo]; did you mean "demo"?`},
	{name: "which model", file: "models.a.model = 'm'\nmodels.b.model = 'm'\n",
		want: "agent.model: want the one to use of a or b"},
	{name: "model name", file: "[models.a]\nkey = 'hunter2'\n",
		want: "config.toml:1: models.a.model: want the provider's name of the model"},
	{name: "base url", file: "[models.a]\nmodel = 'm'\nbase_url = 'u:hunter2@host'\n",
		want: "config.toml:3: models.a.base_url: " + wantHTTP},
	{name: "fallback", file: "[models.a]\nmodel = 'm'\nfallback = ['x', 'demo', 'y']\n",
		want: "config.toml:3: models.a.fallback: there is no [models.x]; there is no [models.y]; want " +
			"the name of a table (a, demo), whose key model says which model of a provider it is"},
	{name: "own fallback", file: "[models.a]\nmodel = 'm'\nfallback = ['a']\n",
		want: "config.toml:3: models.a.fallback: leads back to itself: a -> a"},
	{name: "cycle", file: "[models.demo]\nfallback = ['b']\n" +
		"[models.b]\nmodel = 'm'\nfallback = ['demo']\n[agent]\nmodel = 'demo'\n",
		want: "config.toml:5: models.b.fallback: leads back to itself: b -> demo -> b"},
	{name: "entry name", file: "[channels.'a/b']\ntype = 'telegram'\n",
		want: `config.toml:1: channels.a/b: ` +
			`a name has letters, digits, "_", "-" and "." and at most 64 of them`},
	{name: "type from name", file: "[channels.work]\ntoken = 'hunter2'\n",
		want: `config.toml:1: channels.work.type: ` +
			`want telegram, discord, whatsapp or terminal; ` +
			`without this key the account's name is its type, and "work" is not a type`},
	{name: "type", file: "[channels.work]\ntype = 'telegrm'\n",
		want: `config.toml:2: channels.work.type: ` +
			`want telegram, discord, whatsapp or terminal, not "telegrm"; did you mean "telegram"?`},
	{name: "second terminal", file: "[channels.tty]\ntype = 'terminal'\naccess = 'open'\n",
		want: `config.toml:2: channels.tty.type: ` +
			`the terminal has the name "terminal", and there is only one`},
	{name: "closed terminal", file: "[channels.terminal]\naccess = 'pairing'\n",
		want: "config.toml:2: channels.terminal.access: a terminal is always open"},
	{name: "no token", file: "\n[channels.telegram]\naccess = 'open'\n",
		want: "config.toml:2: channels.telegram.token: " +
			`want the bot's token, best as "env:NAME" or "file:PATH"; or export TELEGRAM_BOT_TOKEN`},
	{name: "account of a variable", env: []string{"GATEWAY_CHANNELS__TELEGRAM__ACCESS=open"},
		want: `channels.telegram.token: want the bot's token, best as "env:NAME" or "file:PATH"; ` +
			`or export TELEGRAM_BOT_TOKEN; the variable GATEWAY_CHANNELS__TELEGRAM__ACCESS ` +
			`sets up this account`},
	{name: "text without quotes", file: "[channels.telegram]\ntoken = 123456789:AAE\n",
		want: "config.toml:2: expected newline but got U+003A ':'; put a text in quotes, as in " +
			`token = "123456789:AAE"`},
	{name: "provider", file: "[models.a]\nprovider = 'gemini'\nmodel = 'm'\n",
		want: `config.toml:2: models.a.provider: want auto, openai, anthropic or demo, not "gemini"; ` +
			"or set base_url"},
	{name: "same token", file: "[channels]\n" +
		"telegram = { token = 'hunter2' }\nbot = { type = 'telegram', token = 'hunter2' }\n",
		want: "config.toml:2: channels.telegram.token: is also that of channels.bot"},
	{name: "token of WhatsApp", file: "[channels.whatsapp]\ntoken = 'hunter2'\n",
		want: "config.toml:2: channels.whatsapp.token: " +
			"WhatsApp has none: link the account with gateway pair whatsapp"},
	{name: "proxy", file: "[channels.whatsapp]\nproxy = 'ftp://u:hunter2@h'\n",
		want: "config.toml:2: channels.whatsapp.proxy: " +
			`want a URL that begins with "http://", "https://" or "socks5://"`},
	{name: "webhook", file: "[channels.telegram]\ntoken = 't'\nwebhook_url = 'http://h/x'\n" +
		"webhook_secret = 'hunter2'\nwebhook_listen = 'here'\n",
		want: "config.toml:3: channels.telegram.webhook_url: " +
			`want the public URL that begins with "https://"` + "\n" +
			"config.toml:4: channels.telegram.webhook_secret: want 16 to 256 letters, digits, " +
			`"_" and "-", which only Telegram and this gateway know` + "\n" +
			`config.toml:5: channels.telegram.webhook_listen: want an address such as "127.0.0.1:8443"`},
	{name: "long secret", file: "[channels.telegram]\ntoken = 't'\nwebhook_url = 'https://h/x'\n" +
		"webhook_secret = '" + strings.Repeat("x", 257) + "'\n",
		want: "config.toml:4: channels.telegram.webhook_secret: want 16 to 256 letters, digits, " +
			`"_" and "-", which only Telegram and this gateway know`},
	{name: "webhook elsewhere", file: "[channels.whatsapp]\nwebhook_url = 'https://h/x'\n" +
		"webhook_secret = '0123456789abcdef'\n",
		want: "config.toml:2: channels.whatsapp.webhook_url: is for Telegram only"},
	{name: "transcription", file: "[transcription]\nmodel = 'w'\nbase_url = 'x'\n",
		want: "config.toml:3: transcription.base_url: " + wantHTTP},
	{name: "speech", file: "[media.speech]\nmodel = 't'\nbase_url = 'x'\nanswers = 'often'\n",
		want: "config.toml:3: media.speech.base_url: " + wantHTTP + "\n" +
			`config.toml:4: media.speech.answers: want never, always or auto, not "often"`},
	{name: "pictures", file: "[media.images]\nmodel = 'p'\nbase_url = 'x'\nprice = -1\n",
		want: "config.toml:3: media.images.base_url: " + wantHTTP + "\n" +
			"config.toml:4: media.images.price: want at least 0, not -1"},
	{name: "nobody", file: "[channels.telegram]\ntoken = 'hunter2'\naccess = 'allow'\n",
		want: "config.toml:1: channels.telegram.allow: " +
			`nobody may speak; want ids here, or access = "pairing"`},
	{name: "secret type", file: "[models.demo]\nkey = ['hunter2']\n",
		want: "config.toml:2: models.demo.key: want a string"},
	{name: "unset secret", file: "[channels.telegram]\ntoken = 'env:MY_TOKEN'\n",
		want: "config.toml:2: channels.telegram.token: environment variable MY_TOKEN is not set " +
			`here: run "export MY_TOKEN=…" first, or store the secret in a file and write "file:PATH"`},
	{name: "secret after env", file: "[models.demo]\nkey = 'env:sk-hunter2'\n",
		want: "config.toml:2: models.demo.key: " +
			`"env:" wants the name of an environment variable after it`},
	{name: "missing secret file", file: "[models.demo]\nkey = 'file:/missing/key'\n",
		want: "config.toml:2: models.demo.key: file /missing/key: no such file or directory"},
	{name: "variable", env: []string{"GATEWAY_AGENT__SLOTS=many"},
		want: `GATEWAY_AGENT__SLOTS: agent.slots: want a whole number, not "many"`},
	{name: "unknown variable", env: []string{"GATEWAY_AGENT__SLOTZ=1"},
		want: `GATEWAY_AGENT__SLOTZ: agent.slotz: unknown key; did you mean "slots"?`},
	{name: "variable of a table", env: []string{"GATEWAY_MODELS__DEMO=1"},
		want: `GATEWAY_MODELS__DEMO: models.demo: want a key of this table after another "__"`},
	{name: "variable below a key", env: []string{"GATEWAY_AGENT__MODEL__X=1"},
		want: "GATEWAY_AGENT__MODEL__X: agent.model.x: unknown key"},
	{name: "variable over file", file: "[agent]\nmodel = 'demo'\n",
		env: []string{"GATEWAY_AGENT__MODEL=x"},
		want: "GATEWAY_AGENT__MODEL: agent.model: there is no [models.x]; want the " +
			"name of a table (demo), whose key model says which model of a provider it is"},
	{name: "home variable", env: []string{"HOME=", "GATEWAY_HOME=~/x"},
		want: `GATEWAY_HOME: gateway.home: "~" has no meaning, because HOME is not set`},
	{name: "all at once", file: "[agent]\nslots = 0\n[log]\nlevel = 1\n[log.x]\n",
		env: []string{"GATEWAY_STORE__URL=x", "GATEWAY_AGENT__QUEUE_MODE=stear"},
		want: "config.toml:2: agent.slots: want at least 1, not 0\n" +
			"config.toml:4: log.level: want debug, info, warn or error, not 1\n" +
			"config.toml:5: log.x: unknown key; want one of level, format, file, file_mb, " +
			"file_keep, file_age\n" +
			"GATEWAY_AGENT__QUEUE_MODE: agent.queue_mode: " +
			`want steer, followup, collect or interrupt, not "stear"; did you mean "steer"?` + "\n" +
			`GATEWAY_STORE__URL: store.url: want "sqlite:PATH"`},
}

// TestBroken checks the errors of mistakes. It also checks that no error contains a secret:
// "hunter2" stands for a secret.
func TestBroken(t *testing.T) {
	for _, tt := range brokenTests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.file, environ(t, tt.env...))
			if err == nil {
				t.Fatal("Load succeeded")
			}
			if err.Error() != tt.want {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the error has a secret in it")
			}
		})
	}
}

func TestNoHome(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := Load("", nil)
	want := `gateway.home: "~" has no meaning, because HOME is not set`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("[agent]\nslots = 1\n", "GATEWAY_AGENT__SLOTS", "1")
	f.Add("models.a = { model = 'm', fallback = ['a'] }\n", "GATEWAY_MODELS__A__KEY", "x")
	f.Add("[[channels.x]]\nd = 1979-05-27\n", "GATEWAY_CHANNELS__", "")
	f.Add("[channels.NAME]\n", "GATEWAY___", "a,b")
	f.Fuzz(func(t *testing.T, file, name, value string) {
		vars := map[string]string{"HOME": "/h", "TELEGRAM_BOT_TOKEN": "t", name: value}
		c, err := newLoader(vars).parse("config.toml", []byte(file))
		if (c == nil) != (err != nil) {
			t.Errorf("parse = %v, %v", c, err)
		}
	})
}
