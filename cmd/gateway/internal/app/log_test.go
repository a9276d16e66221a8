package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gateway/cmd/gateway/internal/config"
)

// TestLogFile verifies that only its owner can read a log file, even if others could read it
// before. A new process appends to the file. When the file is large, a new file begins, and only
// the wanted number of old files is kept.
func TestLogFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "logs", "gateway.log")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	log, end, err := openLog(config.Log{Format: "auto", File: file, FileMB: 1, FileKeep: 2,
		FileAge: 30 * time.Minute}, nil, slog.LevelInfo, nil)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("first")
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "before\n{") {
		t.Errorf("the log is %q, %v", text, err)
	}
	for i := range 500 { // 5 MB
		log.Info("more", "text", fmt.Sprint(i, strings.Repeat("x", 10_000)))
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	// Old files are removed in the background.
	var names []string
	for deadline := time.Now().Add(3 * time.Minute); ; {
		names, err = filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(names) <= 3 || time.Now().After(deadline) {
			break
		}
	}
	if len(names) != 3 || !slices.Contains(names, file) {
		t.Errorf("there are %q, want the log and two old ones", names)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", name, info.Mode(), err)
		}
	}
}

// In a JSON log, a duration is a text that people and package time can read. It is not a number
// without a unit.
func TestLogDurations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gateway.log")
	log, end, err := openLog(config.Log{Format: "json", File: file, FileMB: 1}, nil,
		slog.LevelInfo, nil)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("done", "took", 65454574*time.Nanosecond, "uptime", 19*time.Second)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `"took":"65ms","uptime":"19s"`) {
		t.Errorf("the log is %q, %v", text, err)
	}
}

// TestLogEscapes checks that a text of strangers, such as the title of a group, can't control the
// terminal that shows the log, whether it has the character Escape or spells it.
func TestLogEscapes(t *testing.T) {
	var out strings.Builder
	log := newTextLog(&out, slog.LevelInfo, true)
	for _, title := range []string{"a \x1b[2J title", `a \x1b[2J title`} {
		out.Reset()
		log.With("account", title).Info("ignored", "title", title, "err", errors.New(title))
		if strings.Contains(out.String(), "\x1b[2J") {
			t.Errorf("the log of %q is %q", title, out.String())
		}
		if n := strings.Count(out.String(), "[2J title"); n != 3 {
			t.Errorf("the log shows %d of 3 titles: %q", n, out.String())
		}
	}
	if !strings.Contains(out.String(), "\x1b[") {
		t.Errorf("the log has no colours: %q", out.String())
	}
}
