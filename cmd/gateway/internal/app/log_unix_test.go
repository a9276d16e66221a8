//go:build unix

package app

import (
	"bufio"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"

	"gateway/cmd/gateway/internal/config"
)

// TestLogColours checks that the log has colours only on a terminal that shows them, and not
// against the wish of the person.
func TestLogColours(t *testing.T) {
	for name, tt := range map[string]struct {
		noColor, term string
		want          bool
	}{
		"colours": {"", "xterm", true}, "NO_COLOR": {"1", "xterm", false}, "dumb": {"", "dumb", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", tt.noColor)
			t.Setenv("TERM", tt.term)
			terminal, stderr, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			defer stderr.Close()
			before := os.Stderr
			os.Stderr = stderr
			defer func() { os.Stderr = before }()
			log, end, err := openLog(config.Log{Format: "auto"}, nil, slog.LevelInfo, func() {})
			if err != nil {
				t.Fatal(err)
			}
			log.Warn("look here")
			line, err := bufio.NewReader(terminal).ReadString('\n')
			if err != nil || !strings.Contains(line, "look here") {
				t.Fatalf("the terminal shows %q, %v", line, err)
			}
			if got := strings.Contains(line, "\x1b["); got != tt.want {
				t.Errorf("%q has colours: %v, want %v", line, got, tt.want)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}
