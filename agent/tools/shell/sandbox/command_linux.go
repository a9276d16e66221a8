//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// File descriptors of the supervisor beside the three standard ones.
const (
	reportFD = 3
	lifeFD   = 4
)

// waitDelay is how long a supervisor may take to end all processes after it was told to.
const waitDelay = 5 * time.Second

// Command prepares a command. The command ends when ctx is done or when this program ends.
func (s *Sandbox) Command(ctx context.Context, spec Spec) (*Command, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	j := job{Spec: spec, Mode: s.mode, Bubblewrap: s.bubblewrap, ABI: s.abi, Parent: os.Getpid()}
	j.Env, j.Limits = environment(spec), spec.Limits.withDefaults()
	if j.Dir == "" {
		j.Dir = "/"
		if len(j.ReadWrite) > 0 {
			j.Dir = j.ReadWrite[0]
		}
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("sandbox: command: %w", err)
	}
	// The job is passed in a memory file, because all users can see the arguments of a process.
	report, err := memoryFile("job", text)
	if err != nil {
		return nil, fmt.Errorf("sandbox: command: %w", err)
	}
	held, life, err := os.Pipe()
	if err != nil {
		_ = report.Close() // report the first error
		return nil, fmt.Errorf("sandbox: command: %w", err)
	}
	cmd := exec.CommandContext(ctx, s.self, "run")
	cmd.Args = []string{"gateway", Argument, "run"}
	// The supervisor gets nothing of the gateway's environment. With GORACE, a build with the race
	// detector does not sleep for a second before it exits.
	cmd.Env = []string{"GOMAXPROCS=2", "GORACE=atexit_sleep_ms=0"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{report, held}
	cmd.Cancel = life.Close // the function keeps c.life reachable if a caller keeps only the exec.Cmd
	cmd.WaitDelay = waitDelay
	// With its own session, a command does not get the signals of the gateway's terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return &Command{Cmd: cmd, report: report, held: held, life: life}, nil
}

// Outcome returns how the command ended, and releases its resources. Call it after Wait has
// returned.
func (c *Command) Outcome() (Outcome, error) {
	defer c.Close()
	var o Outcome
	if c.ProcessState == nil {
		return o, fmt.Errorf("sandbox: outcome: the command has not ended")
	}
	text, err := io.ReadAll(io.NewSectionReader(c.report, 0, 1<<20))
	if err != nil {
		return o, fmt.Errorf("sandbox: outcome: %w", err)
	}
	mark, text, _ := bytes.Cut(text, []byte("\n"))
	if string(mark) != outcomeMark {
		EndOrphans() // the supervisor can't end them any more
		return o, fmt.Errorf("sandbox: outcome: the supervisor ended early: %s", c.ProcessState)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("sandbox: outcome: %w", err)
	}
	return o, nil
}

// outcomeMark is the first line of an outcome.
const outcomeMark = "outcome"

// memoryFile returns a file in memory that contains text, positioned at its start.
func memoryFile(name string, text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("gateway-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(text, 0); err != nil {
		_ = f.Close() // report the first error
		return nil, err
	}
	return f, nil
}

// searchPath is the PATH of commands.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the environment of a command: a few standard variables and those of the
// caller, which take precedence. It contains nothing else of the gateway's environment. The
// supervisor sets TMPDIR.
func environment(spec Spec) []string {
	home := "/tmp"
	if len(spec.ReadWrite) > 0 {
		home = spec.ReadWrite[0]
	}
	env := []string{"PATH=" + searchPath, "HOME=" + home, "LANG=C.UTF-8", "TERM=dumb",
		"GIT_CONFIG_NOSYSTEM=1"} // git fails if it can't read the system's file, which may hold passwords
	if zone := os.Getenv("TZ"); zone != "" {
		env = append(env, "TZ="+zone)
	}
	return withEnv(env, spec.Env...)
}

// withEnv returns env with more added. The last value of a name wins.
func withEnv(env []string, more ...string) []string {
	env = slices.Clone(env)
	for _, entry := range more {
		name, _, _ := strings.Cut(entry, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		env = append(env, entry)
	}
	return env
}
