package importer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A session whose name is a hash is imported into the conversation that its .meta.json names, if
// it is a single conversation.
func TestOpaqueSessions(t *testing.T) {
	d := newFixture(t)
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
	const several = "it may hold several conversations, and does not say which"
	line := func(n int, state, text string) string {
		return fmt.Sprintf("%s session workspace/sessions/sk_v1_%d.jsonl > %s", state, n, text)
	}
	d.want(PicoClaw,
		line(1, "new", "my-Bot/42: 1 messages"), line(2, "new", "my-second/-100/7: 1 messages"),
		line(3, "new", "my-Bot/-100/9: 1 messages"),
		line(4, "new", "my-whatsapp/49123456@s.whatsapp.net: 1 messages"),
		line(5, "left", ": "+several),
		line(6, "left", ": it holds what only one member of a group has written"),
		line(7, "left", `: the gateway has no channel "slack"`),
		line(8, "left", `: "sk_v1_8" is not the key of a chat: choose a `+
			"conversation with --as"),
		line(9, "left", ": its scope has the version 2, and only 1 is known"))
	got := d.transcript(named("my-second/-100/7"))
	if !slices.Equal(got, []string{"10:00 user hello"}) {
		t.Errorf("the conversation has %q", got)
	}
}
