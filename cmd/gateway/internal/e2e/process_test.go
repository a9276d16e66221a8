package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gateway/channels/whatsapp/whatsapptest"
)

// buildDir is the folder of the binary during the tests.
var buildDir = filepath.Join(os.TempDir(), "gateway-test-"+strconv.Itoa(os.Getpid()))

// buildBinary builds the gateway once for all tests and returns the path of the binary. The
// binary contains the fault points of package fault. Like a release, it does not use cgo. Its
// version is the same in each checkout.
var buildBinary = sync.OnceValues(func() (string, error) {
	if err := os.Mkdir(buildDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "gateway")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "faults", "-ldflags", "-s -w",
		"-o", path, "gateway/cmd/gateway")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, rewrite(path)
})

// rewrite replaces a program by a copy that is written at once. Linux keeps such a file in large
// pages, so that a start has fewer page faults and takes a quarter less processor time.
func rewrite(path string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	// A program can't run while a process has it open for writing, not even a child that is
	// about to close it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o700)
}

// gateway runs a command of the gateway in the home of w, and returns what it prints.
func (w *world) gateway(args ...string) (string, error) {
	w.t.Helper()
	path, err := buildBinary()
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute) // one that hangs fails by name
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = w.environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A process is a gateway in its own process, without a terminal. Its log is read while it runs.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and its log is read

	mu      sync.Mutex
	counts  map[string]int    // log lines by message
	last    map[string]string // newest log line by message
	tail    []string          // newest log lines
	changed chan struct{}     // closed at the next log line
}

// start starts a gateway in the home of w with additional environment variables.
func (w *world) start(env ...string) *process {
	w.t.Helper()
	path, err := buildBinary()
	if err != nil {
		w.t.Fatal(err)
	}
	return w.startProgram(path, env...)
}

// startProgram is like start, for the program at a path.
func (w *world) startProgram(path string, env ...string) *process {
	w.t.Helper()
	p := &process{
		t: w.t, cmd: exec.Command(path), done: make(chan struct{}),
		counts: make(map[string]int), last: make(map[string]string), changed: make(chan struct{}),
	}
	// As in TestMain, the process must accept the fake WhatsApp.
	p.cmd.Env = append(append(w.environ(),
		"GATEWAY_WHATSAPP_ROOT="+hex.EncodeToString(whatsapptest.RootKey[:])), env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.read(stderr)
		_ = p.cmd.Wait() // ProcessState has the outcome
	}()
	w.t.Cleanup(func() {
		p.kill()
		if w.t.Failed() {
			w.t.Logf("end of the log of process %d:\n%s", p.cmd.Process.Pid, p.newest())
		}
	})
	return p
}

// keepLines is the number of log lines that are shown when a test fails.
const keepLines = 25

func (p *process) read(log io.Reader) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Msg string `json:"msg"`
		}
		// A line that is not JSON, such as a stack trace, counts as "".
		_ = json.Unmarshal(bytes.TrimSpace(lines.Bytes()), &line)
		p.mu.Lock()
		p.counts[line.Msg]++
		p.last[line.Msg] = lines.Text()
		p.tail = append(p.tail, lines.Text())
		if len(p.tail) > 2*keepLines {
			p.tail = append([]string(nil), p.tail[keepLines:]...)
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *process) newest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.tail[max(0, len(p.tail)-keepLines):], "\n")
}

// logged returns the number of log lines with the given message.
func (p *process) logged(message string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[message]
}

// lastOf returns the newest log line with the given message, or "".
func (p *process) lastOf(message string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[message]
}

// errEnded means that a process ended before it did what a test was waiting for.
var errEnded = errors.New("the gateway has ended")

// wait returns when cond is true. It checks cond after each line of the log, and periodically,
// since not every event is logged. It returns an error if the process or ctx ends first.
func (p *process) wait(ctx context.Context, cond func() bool) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-p.done:
			if cond() {
				return nil
			}
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ready waits until the process is ready.
func (p *process) ready() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err := p.wait(ctx, func() bool { return p.logged("gateway ready") > 0 })
	if err != nil {
		p.t.Fatalf("gateway not ready: %v\n%s", err, p.newest())
	}
}

// receives waits until the process receives messages from all three platforms.
func (p *process) receives() {
	p.t.Helper()
	p.ready()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	err := p.wait(ctx, func() bool {
		return p.logged("discord connected") > 0 && p.logged("telegram connected") > 0 &&
			p.logged("whatsapp connection") > 0
	})
	if err != nil {
		p.t.Fatalf("the gateway does not connect: %v\n%s", err, p.newest())
	}
}

// kill kills the process like kill -9 and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// exited waits for the end of the process. It returns the exit code, or -1 if a signal ended the
// process.
func (p *process) exited(within time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.t.Fatalf("the gateway has not ended within %s\n%s", within, p.newest())
	}
	return p.cmd.ProcessState.ExitCode()
}
