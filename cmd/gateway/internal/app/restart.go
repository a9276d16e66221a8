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

// ErrRestart is why a gateway ends that is to start again.
var ErrRestart = errors.New("the gateway is to start again")

// checkTime is how long the program may take to look at the configuration, on a slow machine.
const checkTime = 30 * time.Second

// newRestart returns what /restart does, nil on systems on which a process can't become another
// one. The gateway ends by end, and main starts it again.
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

// checkProgram has the program look at the configuration, as it would when it starts: both may have
// been replaced since this process began. It returns what is wrong, for people. Once ctx has ended,
// nothing is: the gateway starts again already, or somebody else starts it.
func checkProgram(ctx context.Context, cfg *config.Config, log *slog.Logger) string {
	args := []string{"config", "check", "--start-only"}
	if cfg.Found {
		args = append(args, "--config", cfg.File)
	}
	var said beginning
	path, err := os.Executable()
	if err == nil {
		err = runProgram(ctx, &said, path, args...)
	}
	if err == nil || ctx.Err() != nil {
		return ""
	}
	log.ErrorContext(ctx, "no restart: the program or the configuration is not right", "path", path,
		"err", err, "output", string(said.text))
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.ExitCode() == ExitUsage {
		return "The configuration has mistakes, and I would not come back: `gateway config check` " +
			"names them."
	}
	return "My program can't be started any more; the log says why."
}

// runProgram runs a program for at most checkTime. It may be any: one that does not end, or leaves
// others behind that hold on to its output, is not waited for.
func runProgram(ctx context.Context, out io.Writer, path string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	return cmd.Run()
}

// maxSaid is how much of the program's output is worth a place in the log, in bytes.
const maxSaid = 4096

// A beginning keeps the first bytes of what is written to it.
type beginning struct{ text []byte }

// Write implements [io.Writer]. It takes everything.
func (b *beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxSaid-len(b.text))]...)
	return len(p), nil
}
