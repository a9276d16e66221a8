package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // zone names for systems without zone data

	"gateway/cmd/gateway/internal/app"
)

// Main runs the command line and returns the exit code.
func Main(ctx context.Context) int {
	if code, ours := app.RunHelper(); ours {
		return code
	}
	app.Prepare()
	for {
		err := runCommand(ctx)
		if !errors.Is(err, app.ErrRestart) {
			return exitCode(err)
		}
		if err := app.Restart(); err != nil { // the loop runs the present program again
			fmt.Fprintln(os.Stderr, "gateway:", err)
		}
	}
}

// runCommand runs the command line until it ends or a signal cancels it.
func runCommand(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	err := plainUsage(NewCommand().ExecuteContext(ctx))
	if errors.Is(err, app.ErrRestart) && ctx.Err() != nil {
		return nil // a signal came during the restart
	}
	return err
}

// exitCode prints an error and returns the exit code for it.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "gateway:", plainText(err))
	if _, ok := errors.AsType[app.UsageError](err); ok {
		return app.ExitUsage
	}
	return app.ExitFailure
}
