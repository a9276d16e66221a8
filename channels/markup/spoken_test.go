package markup

import "testing"

func TestSpoken(t *testing.T) {
	t.Parallel()
	for md, want := range map[string]string{
		"Hello.":                               "Hello.",
		"# News\n\n**Warm**, ~~not~~ `22 °C`.": "News\n\nWarm, not 22 °C.",
		"Run this:\n\n```sh\nrm -rf /\n```\n\nThen wait.":                     "Run this:\n\nThen wait.",
		"```\nonly code\n```":                                                 "",
		"| a | b |\n|---|---|\n| 1 | 2 |":                                     "",
		"Prices:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nThat is all.":          "Prices:\n\nThat is all.",
		"See [the page](https://example.com/a?b=c), not https://example.org.": "See the page, not .",
		"[https://example.com/x](https://example.com/x)":                      "",
		"- one\n- two":     "one\ntwo",
		"1. one\n2. two":   "1. one\n2. two",
		"> quoted\n\nmine": "quoted\n\nmine",
		"":                 "",
		"a ||secret|| b":   "a secret b",
	} {
		if got := Spoken(md); got != want {
			t.Errorf("Spoken(%q) = %q, want %q", md, got, want)
		}
	}
}
