package memory

import (
	"strings"
	"testing"
)

// The name of a scope becomes a part of paths. ParseScope refuses other characters and names that
// are too long.
func TestParseScope(t *testing.T) {
	for name, want := range map[string]bool{
		"person-1": true, "person-" + strings.Repeat("9", 19): true, "chat-telegram+-42": true,
		"chat-" + strings.Repeat("a", 130): true,

		"": false, "person-": false, "person-0": false, "person-" + strings.Repeat("9", 20): false,
		"chat-": false, "chat-a.": false, "chat-A": false, "chat-a/b": false, "chat-a\n": false,
		"../person-1": false, "chat-" + strings.Repeat("a", 131): false,
	} {
		if got, err := ParseScope(name); (err == nil) != want || want && string(got) != name {
			t.Errorf("ParseScope(%q) = %q, %v; want it taken: %t", name, got, err, want)
		}
	}
}
