package session

import "testing"

func TestParent(t *testing.T) {
	const chat = Key("telegram/-5/7")
	for _, tt := range []struct{ key, want Key }{
		{chat, ""},
		{SubKey(chat, "a1"), chat},
		{JobKey(chat, 3), ""},
		{HookKey(chat, "deploys"), ""},
		{SubKey(HookKey(chat, "deploys"), "a1"), HookKey(chat, "deploys")},
	} {
		if got := tt.key.Parent(); got != tt.want {
			t.Errorf("parent of %s = %q, want %q", tt.key, got, tt.want)
		}
	}
}

func TestBeside(t *testing.T) {
	const chat = Key("telegram/-5/7")
	for _, tt := range []struct{ key, want Key }{
		{chat, ""},
		{JobKey(chat, 3), ""},
		{SubKey(JobKey(chat, 3), "a1"), ""},
		{JobKey(chat, -3), chat},
		{SubKey(JobKey(chat, -3), "a1"), chat},
		{JobKey(JobKey(chat, 5), -3), JobKey(chat, 5)},
	} {
		if got := tt.key.Beside(); got != tt.want {
			t.Errorf("%s works beside %q, want %q", tt.key, got, tt.want)
		}
	}
}
