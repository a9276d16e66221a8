package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // zones by name also where the system has none

	"gateway/agent/extract"
	"gateway/agent/tools/shell/sandbox"
	"gateway/agent/tools/web"
)

func main() { os.Exit(run()) }

// The exit codes.
const (
	exitFailure = 1
	exitUsage   = 2 // a configuration or a command line that is wrong
)

func run() int {
	if code, ours := runHelper(); ours {
		return code
	}
	prepare()
	for {
		err := runCommand()
		if !errors.Is(err, errRestart) {
			return exitCode(err)
		}
		if err := startAgain(); err != nil { // it goes on as the program that it is
			fmt.Fprintln(os.Stderr, "gateway:", err)
		}
	}
}

// runHelper does what this program is started again for by itself, if that is why it runs.
func runHelper() (code int, ours bool) {
	if len(os.Args) < 2 {
		return 0, false
	}
	switch os.Args[1] {
	case sandbox.Argument: // as the supervisor of a command
		return sandbox.Main(os.Args[2:]), true
	case extract.Argument: // to decode a file
		return extract.Main(map[string]extract.Func{web.KindPage: web.Page}), true
	}
	return 0, false
}

// runCommand does what the command line says, until that is done or a signal ends it.
func runCommand() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := newCommand().ExecuteContext(ctx)
	if errors.Is(err, errRestart) && ctx.Err() != nil {
		return nil // somebody has ended it meanwhile
	}
	return err
}

// exitCode tells what has gone wrong and returns the code of that.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "gateway:", plain(err))
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// A usageError is a mistake in the configuration or on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
