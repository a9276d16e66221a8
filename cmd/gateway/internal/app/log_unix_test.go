//go:build unix

package app

import (
	"bufio"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// TestLogPipe checks that the gateway can write its log to a pipe. The pipe keeps its mode, and the
// rotation of log files does not replace it. A pipe without a reader is an error.
func TestLogPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o640); err != nil {
		t.Fatal(err)
	}
	// A pipe opened in this way does not wait for its other side.
	in, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	log, end, err := openLog(config.Log{Format: "json", File: path, FileMB: 1}, nil,
		slog.LevelInfo, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(in)
	for range 300 { // 3 MB
		log.Info("more", "text", strings.Repeat("x", 10_000))
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "more") {
			t.Fatalf("the line is %q, %v", line, err)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeNamedPipe|0o640 {
		t.Errorf("the pipe is now %v, %v", info, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openLog(config.Log{File: path}, nil, slog.LevelInfo, nil); err == nil {
		t.Error("a pipe that nobody reads is no error")
	}
}
