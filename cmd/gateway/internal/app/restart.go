package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"gateway/agent/command"
	"gateway/cmd/gateway/internal/config"
)

// ErrRestart is the reason for the end of a gateway that restarts.
var ErrRestart = errors.New("the gateway restarts")

// checkTime limits the check of the configuration. It is long enough for a slow machine.
const checkTime = 30 * time.Second

// newRestart returns the functions of /restart, or nil if the system does not support a restart.
// The gateway ends with ErrRestart, and main starts the program again.
func newRestart(
	ctx context.Context, cfg *config.Config, end context.CancelCauseFunc, log *slog.Logger,
) *command.Restart {
	if !canRestart {
		return nil
	}
	return &command.Restart{
		Check: func() string { return checkProgram(ctx, cfg, log) },
		Begin: func() { end(ErrRestart) },
	}
}

// checkProgram runs the program file with the command that checks the configuration. Both the
// program and the configuration may have been replaced since this process started. It returns the
// problem as a text for people, or "". It also returns "" if ctx has ended, because then the
// gateway already stops.
func checkProgram(ctx context.Context, cfg *config.Config, log *slog.Logger) string {
	args := []string{"config", "check", "--start-only"}
	if cfg.FileExists {
		args = append(args, "--config", cfg.File)
	}
	var decision prefixWriter
	path, err := os.Executable()
	if err == nil {
		err = runProgram(ctx, &decision, path, args...)
	}
	if err == nil || ctx.Err() != nil {
		return ""
	}
	log.ErrorContext(ctx, "no restart: the program or the configuration has an error", "path", path,
		"err", err, "output", string(decision.text))
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.ExitCode() == ExitUsage {
		return "The configuration has mistakes, and I would not come back: `gateway config check` " +
			"names them."
	}
	return "My program can't be started any more; the log says why."
}

// runProgram runs a program for at most checkTime. It does not wait longer for a program that
// hangs, or for child processes that keep its output open.
func runProgram(ctx context.Context, out io.Writer, path string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	return cmd.Run()
}

// maxSaid is how much of the program's output is logged, in bytes.
const maxSaid = 4096

// A prefixWriter stores the first maxSaid bytes that are written to it.
type prefixWriter struct{ text []byte }

// Write implements [io.Writer]. It never fails.
func (b *prefixWriter) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxSaid-len(b.text))]...)
	return len(p), nil
}
