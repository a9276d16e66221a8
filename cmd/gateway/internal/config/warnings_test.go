package config

import (
	"runtime"
	"strings"
	"testing"
)

// Warnings reports settings that are allowed but have no effect, and nothing else.
func TestWarnings(t *testing.T) {
	t.Parallel()
	environ := func(set ...string) []string {
		return append([]string{"HOME=" + t.TempDir(),
			"GATEWAY_CHANNELS__TELEGRAM__TOKEN=123456789:AAE-_x"}, set...)
	}
	for setting, want := range map[string]string{
		"TELEGRAM__TOKEN=hello":     "channels.telegram.token: this is not a token",
		"TELEGRAM__ALLOW=7,ann":     `channels.telegram.allow: nobody has the id "ann" on telegram`,
		"TELEGRAM__OWNERS=@ann":     `channels.telegram.owners: nobody has the id "@ann"`,
		"TELEGRAM__GROUPS=team":     `channels.telegram.groups: no group has the id "team"`,
		"TELEGRAM__GROUPS=-1001,-2": "",
		"TELEGRAM__OWNERS=7":        "",
		"WHATSAPP__OWNERS=+4915112345678,123@lid,4915112345678@s.whatsapp.net": "",

		"WHATSAPP__GROUPS=120363041234567890@g.us,4915112345678-1@g.us": "",

		"WHATSAPP__ALLOW=4915112345678": `nobody has the id "4915112345678"`,

		"TELEGRAM__OWNERS=7 POLICIES__P__CHATS=telegram/-1,telegram/-1/5 POLICIES__P__PEOPLE=7": "",
		"TELEGRAM__OWNERS=7 POLICIES__P__CHATS=telegram/team": `policies.p.chats: no chat has the id ` +
			`"team" on telegram`,
		"TELEGRAM__OWNERS=7 POLICIES__P__PEOPLE=telegram/@ann": `policies.p.people: nobody has the id ` +
			`"@ann"`,

		"TELEGRAM__OWNERS=7 HTTP__LISTEN= HOOKS__X__TO=telegram/7 " +
			"HOOKS__X__SECRET=0123456789abcdef": `hooks.x: no program can post to it, because listen ` +
			`of [http] is ""`,
		"TELEGRAM__OWNERS=7 HTTP__LISTEN= HOOKS__X__ENABLED=false": "",
	} {
		set := strings.Fields("GATEWAY_CHANNELS__" + setting)
		for i, s := range set[1:] {
			set[i+1] = "GATEWAY_" + s
		}
		c, err := Load("", environ(set...))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := c.Warnings(); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: warnings %q, want %q", setting, got, want)
		}
		if strings.Contains(got, "hello") {
			t.Errorf("%s: warnings %q show the token", setting, got)
		}
	}
}

// The variable TZ can be in a form that Go does not know. Times are then those of UTC.
func TestWrongTZ(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // it has no such variable
	}
	for _, test := range []struct{ tz, zone, want string }{
		{"Europe/Berlin", "Local", ""}, {":Europe/Berlin", "Local", ""}, {":/etc/localtime", "Local", ""},
		{"", "Local", ""}, {"UTC", "Local", ""}, {"Europe/Berln", "Europe/Berlin", ""},
		{"Europe/Berln", "Local", `the zone is UTC, because the variable TZ is "Europe/Berln"`},
		{"CET-1CEST,M3.5.0,M10.5.0/3", "Local", "gateway.timezone: the zone is UTC"},
	} {
		c, err := Load("", []string{"HOME=" + t.TempDir(), "TZ=" + test.tz,
			"GATEWAY_GATEWAY__TIMEZONE=" + test.zone})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := c.Warnings(); err != nil {
			got = err.Error()
		}
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("TZ=%s, %s: warnings %q, want %q", test.tz, test.zone, got, test.want)
		}
	}
}
