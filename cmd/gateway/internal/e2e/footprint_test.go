package e2e

import (
	"bytes"
	"os"
	"testing"
)

// The binary has only what can be called. As soon as anything in it calls methods by names that the
// running program alone knows, as text/template and html/template do for what their templates say,
// the linker must keep each exported method of each package: 6.5 MB more in a binary of 35.
func TestFootprint(t *testing.T) {
	t.Parallel()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(binary, []byte("discordgo.(*Session).Close")) {
		t.Error("the names of methods can't be seen in the binary")
	}
	for name, why := range map[string]string{
		"text/template.(*Template).Execute":   "calls methods by name",
		"html/template.(*Template).Execute":   "calls methods by name",
		"discordgo.(*Session).GuildBanCreate": "is a method that nothing calls",
		"whatsmeow.(*Client).CreateGroup":     "is a method that nothing calls",
	} {
		if bytes.Contains(binary, []byte(name)) {
			t.Errorf("the binary has %s, which %s: go build -ldflags=-dumpdep tells by "+
				"ReflectMethod what keeps it", name, why)
		}
	}
}
