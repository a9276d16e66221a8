package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
)

const (
	defaultTimeout = 60 * time.Second
	earlyEnd       = 2 * time.Second // how long exec waits for a background command to end
)

const execDescription = "Runs a command (POSIX sh, UTF-8) in the workspace, in a sandbox without " +
	"a terminal: give programs options so they ask nothing. Use the file tools for files. For " +
	"servers and beyond 10 minutes use background, then exec_input. $SHARED/skills has " +
	"read-only skills."

// foreign describes the origin of command output to the model.
const foreign = "the output of the command"

// exec implements the tool exec. Room for the processes is reserved before the time limit begins,
// so waiting for room does not shorten the time of the command.
func (s *Shell) exec(ctx context.Context, c tool.Call, a execArgs) (tool.Result, error) {
	argv, err := a.words()
	if err != nil {
		return tool.Result{}, err
	}
	if a.Timeout < 0 {
		return tool.Result{}, errors.New("timeout can't be negative; leave it out for 60 seconds")
	}
	if a.Background {
		return s.begin(ctx, c, argv, a.Dir)
	}
	timeout := defaultTimeout
	if a.Timeout > 0 {
		timeout = time.Duration(min(a.Timeout, int(s.opts.MaxTimeout/time.Second))) * time.Second
	}
	timeout = min(timeout, s.opts.MaxTimeout)
	release, err := s.reserve(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	defer release()
	limited, cancel := s.limit(ctx, timeout)
	defer cancel()
	cmd, err := s.command(limited, c, argv, a.Dir)
	if err != nil {
		return tool.Result{}, err
	}
	var out excerpt
	cmd.Stdout, cmd.Stderr = &out, &out
	runErr := cmd.Run()
	outcome, err := cmd.Outcome()
	// A command that was ended says nothing about the sandbox.
	if limited.Err() == nil && isSandboxFailure(outcome, err, out.String()) {
		if broken := s.opts.Doubt(ctx); broken != nil {
			return tool.Result{}, broken
		}
	}
	if err != nil {
		return tool.Result{}, ended(ctx, errors.Join(runErr, err))
	}
	note := endNote(outcome)
	switch {
	case ctx.Err() != nil:
		note = "it was stopped before it ended"
	case limited.Err() != nil:
		note = fmt.Sprintf("it was ended after %d seconds, its timeout. Give a longer timeout, at "+
			"most %d, or run it with background: true and look at it with exec_input",
			timeout/time.Second, s.opts.MaxTimeout/time.Second)
	case outcome.Err != "":
		return tool.Result{}, startError(outcome)
	}
	return tool.Result{Text: withNote(out.String(), note), Foreign: foreign}, nil
}

// isSandboxFailure reports whether the sandbox seems to have prevented a command from starting: the
// supervisor reported an error or ended without a report, or bwrap itself printed an error.
func isSandboxFailure(o sandbox.Outcome, err error, output string) bool {
	return err != nil || o.Err != "" || o.Exit == 1 && strings.HasPrefix(output, "bwrap: ")
}

// ended returns, for the model, the reason why the outcome of a command is unknown.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("the command was stopped before it ended: %w", ctx.Err())
	}
	return fmt.Errorf("the outcome of the command is unknown; it may have done its work or not: %w",
		err)
}

func startError(o sandbox.Outcome) error {
	return fmt.Errorf("the command could not be started: %s; programs are looked for in the usual "+
		"folders of the system, others need their path", shorten(o.Err, 500))
}

// withNote returns an output followed by note on a line of its own.
func withNote(output, note string) string {
	output = strings.TrimRight(output, "\n")
	if strings.TrimSpace(output) == "" {
		return "[no output; " + note + "]"
	}
	return output + "\n[" + note + "]"
}

// endNote describes the end of a command, and what the model can do about it.
func endNote(o sandbox.Outcome) string {
	if advice := adviceOn(o.Limit); advice != "" {
		return fmt.Sprintf("it was ended because it exceeded a limit, %s: %s", o.Limit, advice)
	}
	switch {
	case o.Signal > 0:
		return fmt.Sprintf("ended by signal %d, %s", o.Signal, syscall.Signal(o.Signal))
	case o.Exit > 128 && o.Exit < 128+65: // the convention of shells: 128 + signal
		return fmt.Sprintf("exit code %d, which may mean signal %d, %s", o.Exit, o.Exit-128,
			syscall.Signal(o.Exit-128))
	}
	return fmt.Sprintf("exit code %d", o.Exit)
}

// adviceOn returns a suggestion for the model after a command exceeded a limit, or "".
func adviceOn(limit string) string {
	switch limit {
	case sandbox.LimitMemory:
		return "work on less at once"
	case sandbox.LimitProcesses:
		return "start fewer processes or threads at a time"
	case sandbox.LimitCPU:
		return "do less at once"
	case sandbox.LimitFileSize:
		return "write smaller files"
	case sandbox.LimitFree:
		return "the disk is almost full; remove what is not needed any more, or ask the owner to"
	case sandbox.LimitDisk, sandbox.LimitFiles:
		return "write less, and remove what is not needed any more"
	}
	return ""
}
