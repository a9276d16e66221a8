package command

import (
	"testing"

	"gateway/bus"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, name, args string }{
		{"/help", "help", ""},
		{"  /HeLP \n", "help", ""},
		{"/queue steer", "queue", "steer"},
		{"/queue\tsteer", "queue", "steer"},
		{"/note first line\nsecond line\n", "note", "first line\nsecond line"},
		{"/note\nonly below", "note", "only below"},
		{"/dream-log 3", "dream-log", "3"},
		{"/approve\u3000ABC", "approve", "ABC"}, // the blank of Japanese and Chinese keyboards
		{"/approve\u00a0ABC\u3000", "approve", "ABC"},
		{"/\u3000help", "", ""},
		{"/etc/hosts", "", ""},
		{"/etc/hosts is what?", "", ""},
		{"/help@otherbot", "", ""},
		{"/", "", ""},
		{"/ help", "", ""},
		{"//", "", ""},
		{"/übersetze das", "", ""},
		{"help", "", ""},
		{"what is /help?", "", ""},
		{"", "", ""},
	} {
		name, args := parse(test.text)
		if name != test.name || name != "" && args != test.args {
			t.Errorf("parse(%q) = %q, %q, want %q, %q",
				test.text, name, args, test.name, test.args)
		}
	}
}

// Pasted and forwarded text is not a command, nor is text that does not come from a person, such
// as the text of a hook.
func TestParseMessage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		m    bus.InboundMessage
		want string
	}{
		{bus.InboundMessage{Text: "/halt"}, "halt"},
		{bus.InboundMessage{Text: "/halt", Literal: true}, ""},
		{bus.InboundMessage{Text: "/halt", Forwarded: "Bob"}, ""},
		{bus.InboundMessage{Text: "/halt", Origin: bus.Origin{Kind: bus.Hook}}, ""},
	} {
		if name, _ := Parse(test.m); name != test.want {
			t.Errorf("Parse(%+v) = %q, want %q", test.m, name, test.want)
		}
	}
}
