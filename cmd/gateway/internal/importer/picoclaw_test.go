package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The accounts of channel_list are accounts here, each with its own people.
func TestChannelList(t *testing.T) {
	d := newDesk(t)
	d.write(".security.yml", "channels:\n  telegram:\n    token: SECRET\n")
	cfg, made := d.settings(PicoClaw, `{"version":3,
		"agents":{"defaults":{"model_name":"gpt"}},
		"model_list":[{"model_name":"gpt","model":"openai/gpt-5.2"}],
		"channels":{"telegram":{"enabled":true,"allow_from":["1"]},
			"discord":{"enabled":true,"token":"SECRET","allow_from":["5"]}},
		"channel_list":{
			"telegram":{"enabled":true,"type":"telegram","allow_from":[42,"@bob"],
				"settings":{"proxy":"http://SECRET@host"}},
			"Work Bot":{"enabled":true,"type":"telegram","allow_from":["43","44"]},
			"phone":{"enabled":true,"type":"whatsapp_native",
				"allow_from":["49123456@s.whatsapp.net"]},
			"terminal":{"enabled":true,"type":"discord","token":"SECRET","allow_from":["*"]},
			"off":{"enabled":false,"type":"telegram"},
			"team":{"enabled":true,"type":"slack","settings":{"bot_token":"SECRET"}}}}`)
	got := make(map[string]string)
	for name, c := range cfg.Channels {
		if name != "terminal" { // it is always there
			got[name] = fmt.Sprintf("%s %s %s %s", c.Type, c.Access, c.Allow, c.Token.Reveal())
		}
	}
	want := map[string]string{
		"telegram":         "telegram allow [42] TELEGRAM_BOT_TOKEN",
		"Work-Bot":         "telegram allow [43 44] WORK_BOT_BOT_TOKEN",
		"phone":            "whatsapp allow [+49123456] ",
		"terminal-discord": "discord pairing [] TERMINAL_DISCORD_BOT_TOKEN",
		"discord":          "discord allow [5] DISCORD_BOT_TOKEN",
	}
	if !maps.Equal(got, want) {
		t.Errorf("the accounts are %q\nwant %q in\n%s", got, want, made)
	}
	for _, line := range []string{"There are no such channels here: team",
		"# The token is in " + d.home + "/.security.yml, for the channel telegram: ",
		"# The token is in " + d.home + "/config.json, for the channel terminal: ",
		"# The key is in " + d.home + "/.security.yml, model_list.gpt.api_keys: "} {
		if !strings.Contains(made, line) {
			t.Errorf("there is no %q in\n%s", line, made)
		}
	}
}

// A session whose name is a hash belongs where its .meta.json says, if that is one conversation.
func TestOpaqueSessions(t *testing.T) {
	d := newDesk(t)
	d.write("config.json", `{"channel_list":{
		"Bot":{"enabled":true,"type":"telegram"},"second":{"enabled":true,"type":"telegram"},
		"phone":{"enabled":true,"type":"whatsapp_native"},
		"team":{"enabled":true,"type":"slack"}}}`)
	d.target.Account = func(platform string) string { return "my-" + platform }
	session := func(n int, scope string) {
		name := fmt.Sprintf("workspace/sessions/sk_v1_%d", n)
		d.write(name+".jsonl", `{"role":"user","content":"hello"}`+"\n")
		if scope != "" {
			d.write(name+".meta.json", fmt.Sprintf(`{"key":"sk_v1_%d","count":1,"scope":%s,
				"aliases":["agent:main:main"],"created_at":"2026-02-16T10:00:00Z",
				"updated_at":"2026-02-16T10:00:00Z"}`, n, scope))
		}
	}
	scope := func(channel, dimensions, values string) string {
		return fmt.Sprintf(`{"version":1,"agent_id":"main","channel":%q,"account":"default",`+
			`"dimensions":[%s],"values":{%s}}`, channel, dimensions, values)
	}
	session(1, scope("bot", `"chat"`, `"chat":"direct:42"`))
	session(2, scope("second", `"chat"`, `"chat":"group:-100/7"`))
	session(3, scope("bot", `"space","chat","topic"`, `"chat":"group:-100","topic":"topic:9"`))
	session(4, scope("phone", `"chat","sender"`,
		`"chat":"direct:49123456@s.whatsapp.net","sender":"x"`))
	session(5, scope("bot", `"sender"`, `"sender":"42"`))
	session(6, scope("bot", `"chat","sender"`, `"chat":"group:-100","sender":"42"`))
	session(7, scope("team", `"chat"`, `"chat":"channel:c1"`))
	session(8, "")
	session(9, strings.Replace(scope("bot", `"chat"`, `"chat":"direct:42"`), "1", "2", 1))
	const several = "what was said in several conversations may be in it, and which is not known"
	line := func(n int, state, text string) string {
		return fmt.Sprintf("%s session workspace/sessions/sk_v1_%d.jsonl > %s", state, n, text)
	}
	d.want(PicoClaw,
		line(1, "new", "my-Bot/42: 1 messages"), line(2, "new", "my-second/-100/7: 1 messages"),
		line(3, "new", "my-Bot/-100/9: 1 messages"),
		line(4, "new", "my-whatsapp/49123456@s.whatsapp.net: 1 messages"),
		line(5, "left", ": "+several),
		line(6, "left", ": it is what one of several people has said in a group"),
		line(7, "left", `: there is no channel "slack" here`),
		line(8, "left", `: "sk_v1_8" names no conversation: gateway sessions import FILE `+
			"--as SESSION gives it one"),
		line(9, "left", ": its scope has the version 2, and only 1 is known"))
	if got := d.transcript("my-second/-100/7"); !slices.Equal(got, []string{"10:00 user hello"}) {
		t.Errorf("the conversation has %q", got)
	}
}
