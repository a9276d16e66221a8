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

// The supervisor's files beside the three usual ones.
const (
	reportFD = 3
	lifeFD   = 4
)

// waitDelay is how long a supervisor may take to end everything once it is told to.
const waitDelay = 5 * time.Second

// Command prepares a command. It ends when ctx does, or earlier with this program.
func (s *Sandbox) Command(ctx context.Context, spec Spec) (*Command, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	j := job{
		Mode: s.mode, Argv: spec.Argv, Dir: spec.Dir, Env: environment(spec),
		ReadOnly: spec.ReadOnly, ReadWrite: spec.ReadWrite, Network: spec.Network,
		Limits: spec.Limits.withDefaults(), Bubblewrap: s.bubblewrap, ABI: s.abi,
		Parent: os.Getpid(),
	}
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
	// The job goes through a file in memory: the arguments of a process are for all to see.
	report, err := memoryFile("job", text)
	if err != nil {
		return nil, fmt.Errorf("sandbox: command: %w", err)
	}
	held, life, err := os.Pipe()
	if err != nil {
		_ = report.Close() // the first error counts
		return nil, fmt.Errorf("sandbox: command: %w", err)
	}
	cmd := exec.CommandContext(ctx, s.self, "run")
	cmd.Args = []string{"gateway", Argument, "run"}
	// Nothing of ours. A build that looks for races would else sleep a second before it ends.
	cmd.Env = []string{"GOMAXPROCS=2", "GORACE=atexit_sleep_ms=0"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{report, held}
	cmd.Cancel = life.Close // held here too, for those who only keep the exec.Cmd
	cmd.WaitDelay = waitDelay
	// Signals for the gateway's terminal are not for its commands.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return &Command{Cmd: cmd, report: report, life: life}, nil
}

// Outcome returns how the command ended, once Wait has returned, and frees what the command holds.
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
		EndOrphans() // nobody else looks after them any more
		return o, fmt.Errorf("sandbox: outcome: the supervisor ended early: %s", c.ProcessState)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("sandbox: outcome: %w", err)
	}
	return o, nil
}

// outcomeMark is the first line of an outcome.
const outcomeMark = "outcome"

// memoryFile returns a file that only exists in memory, with this text, at its start.
func memoryFile(name string, text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("gateway-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(text, 0); err != nil {
		_ = f.Close() // the first error counts
		return nil, err
	}
	return f, nil
}

// searchPath is where commands are looked for.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns what a command finds in its environment: the usual names, and over them what
// the caller gives. Nothing else of our own environment is in it. TMPDIR is the supervisor's.
func environment(spec Spec) []string {
	home := "/tmp"
	if len(spec.ReadWrite) > 0 {
		home = spec.ReadWrite[0]
	}
	env := []string{"PATH=" + searchPath, "HOME=" + home, "LANG=C.UTF-8", "TERM=dumb",
		"GIT_CONFIG_NOSYSTEM=1"} // it may hold passwords, and git ends if it can't be read
	if zone := os.Getenv("TZ"); zone != "" {
		env = append(env, "TZ="+zone)
	}
	return withEnv(env, spec.Env...)
}

// withEnv returns env with more, of which the last of a name holds.
func withEnv(env []string, more ...string) []string {
	env = slices.Clone(env)
	for _, entry := range more {
		name, _, _ := strings.Cut(entry, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		env = append(env, entry)
	}
	return env
}
