package channels_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"gateway/channels"
)

func TestForeign(t *testing.T) {
	for in, want := range map[string]string{
		"Ann":                    "Ann",
		" a \t\n b\u2028c\x00d ": "a b c d",
		"\u202eevil\u2066\ufeff": "evil",
		"👩\u200d🌾 and \u200cyou": "👩\u200d🌾 and \u200cyou",
		"bad\xff utf-8":          "bad utf-8",
		"0123456789ABC":          "0123456789",
		"01234567 9ABC":          "01234567 9",
		"012345678  ABC":         "012345678",
		"":                       "",
	} {
		if got := channels.Clean(in, max(10, utf8.RuneCountInString(want))); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := channels.Placeholder("poll", "a]b\n[c"); got != "[poll: a)b (c]" {
		t.Errorf("Bracket = %q", got)
	}
	if got := channels.Placeholder("dice", ""); got != "[dice]" {
		t.Errorf("Bracket = %q", got)
	}
	for in, want := range map[string]string{
		"@bot, hello": "hello", "hello @bot": "hello", "hello @bot there": "hello there",
		"one\n@bot two": "one\ntwo", "@bot": "",
	} {
		i := strings.Index(in, "@bot")
		if got := channels.WithoutMention(in, i, i+4); got != want {
			t.Errorf("WithoutMention(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a  b\u202e", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, min(limit, 1000))
		got := channels.Clean(s, limit)
		if utf8.RuneCountInString(got) > limit || !utf8.ValidString(got) ||
			channels.Clean(got, limit) != got {
			t.Errorf("Clean(%q, %d) = %q", s, limit, got)
		}
	})
}
