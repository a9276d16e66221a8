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
	"gateway/cmd/gateway/internal/telemetry"
)

// newLogger returns the log: for people on a terminal, JSON for machines. While somebody chats
// on the terminal, only what needs attention disturbs them: see [logLevel].
func newLogger(cfg config.Log, screen *terminal.Screen, level slog.Leveler) *slog.Logger {
	var out io.Writer = os.Stderr
	onTerminal := term.IsTerminal(int(os.Stderr.Fd()))
	if screen != nil && onTerminal {
		out = screen
	}
	if cfg.Format == "text" || cfg.Format == "auto" && onTerminal {
		return slog.New(telemetry.WithTrace(tint.NewTextHandler(out, &tint.Options{
			Level: level, TimeFormat: time.TimeOnly, NoColor: !onTerminal,
		})))
	}
	return slog.New(telemetry.WithTrace(slog.NewJSONHandler(out,
		&slog.HandlerOptions{Level: level})))
}

// logLevel returns the level of the log, which is higher while somebody chats, unless they asked
// for everything.
func logLevel(cfg config.Log, chat bool) slog.Level {
	if chat && cfg.Level > slog.LevelDebug {
		return max(cfg.Level, slog.LevelWarn)
	}
	return cfg.Level
}
