package cli

import (
	"strings"
	"testing"
)

// A person may press Enter before pasting the address.
func TestAwaitAddress(t *testing.T) {
	const want = "http://localhost:33418/callback?code=x"
	got, err := awaitAddress(t.Context(), strings.NewReader("\n \r\n"+want+"\n"), "", func() {})
	if err != nil || got != want {
		t.Errorf("the address is %q, %v; want %q", got, err, want)
	}
}
