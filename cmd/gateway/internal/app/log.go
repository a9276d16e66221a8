package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
	"gopkg.in/natefinch/lumberjack.v2"

	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/config"
)

// errLogLost ends a gateway whose log nobody reads any more. Its exit code makes a supervisor such
// as systemd start the gateway again, with a new pipe.
var errLogLost = errors.New("what read the log from standard error has ended")

// SurviveBrokenPipes keeps the process alive when it writes to a standard output or standard error
// that nobody reads; the write fails instead. Go would end the process by SIGPIPE: a gateway
// without the answers under way, which systemd takes for a wanted end. The effect lasts until the
// process ends, since its last error goes there, too. Programs that it starts get the signal as
// usual.
func SurviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// A pipedLog writes the log to standard error. It calls lost when nobody reads that any more.
type pipedLog struct{ lost func() }

// Write implements [io.Writer].
func (p pipedLog) Write(line []byte) (int, error) {
	n, err := os.Stderr.Write(line)
	if errors.Is(err, syscall.EPIPE) {
		p.lost()
	}
	return n, err
}

// openLog returns the log and a function that closes it. The format is text on a terminal and
// JSON otherwise, unless configured. During a chat on the terminal only important lines are
// shown: see [logLevel]. lost is called when nobody reads the log any more.
func openLog(
	cfg config.Log, screen *terminal.Screen, level slog.Leveler, lost func(),
) (*slog.Logger, func() error, error) {
	var out io.Writer = pipedLog{lost}
	end := func() error { return nil }
	onTerminal := term.IsTerminal(int(os.Stderr.Fd()))
	switch {
	case cfg.File != "":
		file, err := openLogFile(cfg)
		if err != nil {
			return nil, nil, fmt.Errorf("the log can't be written: %w; change [log] file, or "+
				"make its folder one that this user can write to", err)
		}
		out, end, onTerminal = file, file.Close, false
	// A drawn screen has the terminal for itself and shows the log above its input.
	case screen != nil && screen.Drawn() && onTerminal:
		out = screen
	}
	if cfg.Format == "text" || cfg.Format == "auto" && onTerminal {
		colours := onTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		return newTextLog(out, level, colours), end, nil
	}
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{
		Level: level, ReplaceAttr: spellDuration})), end, nil
}

// newTextLog returns a log for people, with colours on a terminal.
func newTextLog(out io.Writer, level slog.Leveler, colours bool) *slog.Logger {
	return slog.New(tint.NewTextHandler(out, &tint.Options{
		Level: level, TimeFormat: time.TimeOnly, NoColor: !colours, ReplaceAttr: quoteEscape,
	}))
}

// quoteEscape makes the text log quote a value with the character Escape, which could control the
// terminal. The log keeps colours in values: it would write the character, also for its spelling
// \x1b, but not for a list of bytes.
func quoteEscape(_ []string, a slog.Attr) slog.Attr {
	if k := a.Value.Kind(); k != slog.KindString && k != slog.KindAny {
		return a
	}
	text := a.Value.String()
	if strings.Contains(text, "\x1b") || strings.Contains(text, `\x1b`) {
		a.Value = slog.AnyValue([]byte(text))
	}
	return a
}

// spellDuration formats a duration such that [time.ParseDuration] can read it, such as "1.5s".
// Package slog would write nanoseconds.
func spellDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		d := a.Value.Duration()
		if d > time.Millisecond {
			d = d.Round(time.Millisecond)
		}
		a.Value = slog.StringValue(d.String())
	}
	return a
}

// openLogFile opens the log file, readable only for its owner. If the file is not writable, it
// fails now and not at the first line. A device such as /dev/null or /dev/stdout keeps its mode and
// its name.
func openLogFile(cfg config.Log) (io.WriteCloser, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.File), 0o700); err != nil {
		return nil, err
	}
	// Opening a pipe that nobody reads would block without O_NONBLOCK.
	const flags = os.O_CREATE | os.O_APPEND | os.O_WRONLY | syscall.O_NONBLOCK
	f, err := os.OpenFile(cfg.File, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return f, err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return nil, err
	}
	const day = 24 * time.Hour
	return &lumberjack.Logger{
		Filename: cfg.File, MaxSize: cfg.FileMB, MaxBackups: cfg.FileKeep,
		MaxAge: int((cfg.FileAge + day - 1) / day), // lumberjack counts days
	}, nil
}

// logLevel returns the level of the log. It is higher while somebody chats on the terminal that
// shows the log, unless the configuration asks for more.
func logLevel(cfg config.Log, chat bool) slog.Level {
	if chat && cfg.File == "" && cfg.Level > slog.LevelDebug {
		return max(cfg.Level, slog.LevelWarn)
	}
	return cfg.Level
}
