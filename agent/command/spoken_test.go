package command

import "testing"

func TestSpoken(t *testing.T) {
	t.Parallel()
	c := New(Deps{})
	names := []string{"Ada", "Ада", "小明", "Big Bot"}
	for _, test := range []struct {
		said  string
		text  string
		named bool
	}{
		{"Stop.", "/stop", false},
		{"stopp!", "/stop", false},
		{"Стоп.", "/stop", false},
		{"停止。", "/stop", false},
		{"Slash stop.", "/stop", false},
		{"/stop", "/stop", false},
		{"/ Stop", "/stop", false},
		{"Slash, new.", "/new", false},
		{"Schrägstrich New", "/new", false},
		{"Barre oblique, status.", "/status", false},
		{"Слэш new", "/new", false},
		{"スラッシュnew", "/new", false},
		{"Slash dream log", "/dream-log", false},
		{"slash dream", "/dream", false},
		{"Slash model Fast One.", "/model Fast One", false},
		{"Slash remind in 20 minutes, buy milk.", "/remind in 20 minutes, buy milk", false},
		{"Ada, slash new.", "/new", true},
		{"Ada! Stop!", "/stop", true},
		{"Stop, Ada.", "/stop", true},
		{"Ada: slash queue collect", "/queue collect", true},
		{"Big bot, slash new", "/new", true},
		{"Have you seen it, ada?", "", true},
		{"小明你好", "", true},
		{"Ада, привет", "", true},
		{"Adam is here", "", false},
		{"The big old bot", "", false},
		{"Stop the car.", "", false},
		{"Don't stop.", "", false},
		{"Slash and burn", "", false},
		{"Slashnew", "", false},
		{"The word slash new", "", false},
		{"slash answer 3", "", false}, // only buttons send this command
		{"new", "", false},
		{"Slash", "", false},
		{"/", "", false},
		{"/etc/hosts", "", false},
		{"", "", false},
		{"...", "", false},
	} {
		text, named := c.ParseSpoken(test.said, names, false)
		if text != test.text || named != test.named {
			t.Errorf("Spoken(%q) = %q, %t, want %q, %t", test.said, text, named, test.text, test.named)
		}
	}
	if text, _ := c.ParseSpoken("Stop!", names, true); text != "" {
		t.Errorf("Spoken in a group, to nobody: %q", text)
	}
	if text, _ := c.ParseSpoken("Slash stop", names, true); text != "/stop" {
		t.Errorf("Spoken in a group with a slash: %q", text)
	}
}
