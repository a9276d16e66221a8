package config

import "testing"

func TestHas(t *testing.T) {
	c := &Config{
		Exec:     Exec{Sandbox: "none"},
		Channels: map[string]Channel{"telegram": {Enabled: true, Type: "telegram"}},
	}
	for setting, want := range map[string]bool{
		"exec.sandbox": true, "exec.sandbox=none": true, "exec.sandbox=auto": false,
		"exec.network": false, "exec.network=false": true, "exec": true, "web.search_key": false,
		"channels.telegram.enabled": true, "channels.telegram.enabled=true": true,
		"channels.discord.enabled": false, "channels.telegram": true,
		"nothing": false, "exec.sandbox.more": false, "": false, "=": false,
	} {
		if got := c.Has(setting); got != want {
			t.Errorf("Has(%q) = %v, want %v", setting, got, want)
		}
	}
	key := "hunter2"
	c.Web.SearchKey = Secret{value: &key}
	if !c.Has("web.search_key") || c.Has("web.search_key=hunter2") {
		t.Error("that there is a secret is not told, or it can be guessed")
	}
}
