//go:build unix

package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestImpostor checks what commands do after the gateway was killed and another program got its
// address. The commands send nothing to that program and use their own home.
func TestImpostor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	o := w.operate()
	o.ready()
	o.kill()
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	impostor := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"PID": 1}) // the client may be gone
	})}
	go func() { _ = impostor.Serve(l) }() // Serve ends with Close
	defer impostor.Close()
	if out := w.command("halt"); !strings.Contains(out, "Stopped") {
		t.Errorf("gateway halt says %q", out)
	}
	if out := w.command("resume"); !strings.Contains(out, "continues") {
		t.Errorf("gateway resume, in the same home, says %q", out)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("another program got %d requests with the token", n)
	}
}

// TestTerminalForgets checks that /forget also removes the input history of the terminal.
func TestTerminalForgets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{answer: repeat})
	p := w.sit(newVT(100, 40, ansi.GraphemeWidth), nil)
	p.sees("✓ telegram: ")
	p.types("my secret is XYZZY" + enterKey)
	p.sees("you said my secret is XYZZY")
	p.types("/forget me" + enterKey)
	p.sees("/forget me now")
	p.types("/forget me now" + enterKey)
	w.repeat("the history to be forgotten", func() bool {
		text, err := os.ReadFile(filepath.Join(w.home, "terminal-history"))
		return err != nil || !strings.Contains(string(text), "XYZZY")
	})
	p.types(ctrlD + "n")
	p.ends()
}
