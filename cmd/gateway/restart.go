package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"gateway/agent"
	"gateway/cmd/gateway/internal/config"
)

// errRestart is why a gateway ends that is to start again.
var errRestart = errors.New("the gateway is to start again")

// checkTime is how long the program may take to look at the configuration, on a slow machine.
const checkTime = 30 * time.Second

// newRestart returns what /restart does, nil on systems on which a process can't become another
// one. The gateway ends by end, and main starts it again.
func newRestart(
	ctx context.Context, cfg *config.Config, end context.CancelCauseFunc, log *slog.Logger,
) *agent.Restart {
	if !canRestart {
		return nil
	}
	return &agent.Restart{
		Check: func() string { return checkProgram(ctx, cfg, log) },
		Begin: func() { end(errRestart) },
	}
}

// checkProgram has the program look at the configuration, as it would when it starts: both may have
// been replaced since this process began. It returns what is wrong, for people.
func checkProgram(ctx context.Context, cfg *config.Config, log *slog.Logger) string {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	args := []string{"config", "check"}
	if cfg.Found {
		args = append(args, "--config", cfg.File)
	}
	path, err := os.Executable()
	var out []byte
	if err == nil {
		out, err = exec.CommandContext(ctx, path, args...).CombinedOutput()
	}
	if err == nil {
		return ""
	}
	log.ErrorContext(ctx, "no restart: the program or the configuration is not right", "path", path,
		"err", err, "output", string(out))
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.ExitCode() == exitUsage {
		return "The configuration has mistakes, and I would not come back: `gateway config check` " +
			"names them."
	}
	return "My program can't be started any more; the log says why."
}
