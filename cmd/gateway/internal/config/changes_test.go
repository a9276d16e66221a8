package config

import (
	"reflect"
	"slices"
	"testing"
)

func TestMergeAndChanged(t *testing.T) {
	const old = `
[agent]
model = "a"
slots = 3
[models.a]
model = "a"
key = "key-a"
[models.gone]
model = "x"
[channels.bot]
type = "telegram"
token = "token"
allow = [1]
[channels.off]
type = "discord"
token = "token2"
[mcp.x]
command = ["x"]
[mcp.x.env]
A = "1"
[tools.exec]
user = "ask"
`
	tests := []struct {
		name, new     string
		live, restart []string
	}{
		{"nothing", old + "# a comment\n", nil, nil},
		{"everything", `
[agent]
model = "b"
slots = 4
[log]
level = "debug"
format = "json"
[models.a]
model = "a"
key = "key-b"
[models.b]
model = "b"
[memory]
model = "b"
idle = "1h"
[heartbeat]
model = "b"
every = "1h"
[budget]
day_tokens = 5
[prices]
ceiling_in = 1
[transcription]
price_minute = 0.5
[channels.bot]
type = "telegram"
token = "other-token"
allow = [1, 2]
streaming = false
[channels.new]
type = "telegram"
token = "token3"
[mcp.x]
command = ["x"]
[mcp.x.env]
A = "2"
B = "1"
[tools.spawn]
user = "deny"
`, []string{"agent.model", "budget.day_tokens", "channels.bot.allow", "heartbeat.model",
			"log.level", "memory.idle", "memory.model", "models.a.key", "models.b", "models.gone",
			"prices.ceiling_in", "tools.exec", "tools.spawn", "transcription.price_minute"},
			[]string{"agent.slots", "channels.bot.streaming", "channels.bot.token", "channels.new",
				"channels.off", "heartbeat.every", "log.format", "mcp.x.env.A", "mcp.x.env.B"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := environ(t)
			before, after := mustLoad(t, old, env), mustLoad(t, tt.new, env)
			kept := mustLoad(t, old, env)
			merged := Merge(before, after)
			if got := Changed(before, merged); !slices.Equal(got, tt.live) {
				t.Errorf("live are %q, want %q", got, tt.live)
			}
			if got := Changed(merged, after); !slices.Equal(got, tt.restart) {
				t.Errorf("a restart need %q, want %q", got, tt.restart)
			}
			if !reflect.DeepEqual(before, kept) {
				t.Errorf("Merge has changed what it was given: %q", Changed(before, kept))
			}
			if again := Merge(merged, after); len(Changed(merged, again)) > 0 {
				t.Errorf("a second Merge changes %q", Changed(merged, again))
			}
		})
	}
}
