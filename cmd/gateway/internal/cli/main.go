package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // zones by name also where the system has none

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
		if err := app.StartAgain(); err != nil { // it goes on as the program that it is
			fmt.Fprintln(os.Stderr, "gateway:", err)
		}
	}
}

// runCommand runs the command line until it is done or a signal ends it.
func runCommand(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := usage(NewCommand().ExecuteContext(ctx))
	if errors.Is(err, app.ErrRestart) && ctx.Err() != nil {
		return nil // somebody has ended it meanwhile
	}
	return err
}

// exitCode prints an error and returns its exit code.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "gateway:", plain(err))
	if _, ok := errors.AsType[app.UsageError](err); ok {
		return app.ExitUsage
	}
	return app.ExitFailure
}
