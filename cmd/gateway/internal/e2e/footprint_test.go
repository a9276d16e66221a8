package e2e

import (
	"bytes"
	"os"
	"testing"
)

// TestFootprint checks that the linker removes unused methods. If any code calls methods by a
// name that is known only at run time, as text/template and html/template do, the linker must
// keep all exported methods of all packages. That adds 6.5 MB to a binary of 35 MB.
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
