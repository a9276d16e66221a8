package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/config"
)

// newLogger returns the log: for people on a terminal, JSON for machines. While somebody chats
// on the terminal, only what needs attention disturbs them, unless they asked for everything.
func newLogger(cfg config.Log, screen *terminal.Screen) *slog.Logger {
	var out io.Writer = os.Stderr
	level := cfg.Level
	onTerminal := term.IsTerminal(int(os.Stderr.Fd()))
	if screen != nil {
		if onTerminal {
			out = screen
		}
		if level > slog.LevelDebug {
			level = max(level, slog.LevelWarn)
		}
	}
	if cfg.Format == "text" || cfg.Format == "auto" && onTerminal {
		return slog.New(tint.NewTextHandler(out, &tint.Options{
			Level: level, TimeFormat: time.TimeOnly, NoColor: !onTerminal,
		}))
	}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
}
