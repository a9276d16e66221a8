//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A greedyCommand is a command that uses more than its limits allow.
type greedyCommand struct {
	name   string
	argv   func(w *world) []string
	limits Limits
	want   []string // one of these limits ends it; empty if it fails by itself
	max    int64    // the most bytes that it may leave behind; 0 for any
}

func shell(script string) func(*world) []string {
	return func(*world) []string { return []string{"/bin/sh", "-c", script} }
}

func probing(args ...string) func(*world) []string {
	return func(w *world) []string {
		argv := []string{w.self, escapeArgument}
		for _, a := range args {
			argv = append(argv, strings.ReplaceAll(a, "WS", w.ws))
		}
		return argv
	}
}

// TestLimits checks that a command that exceeds a limit ends with all its processes. Without
// limits, the same command must succeed.
func TestLimits(t *testing.T) {
	free := freeOn(t.TempDir()).bytes
	gluttons := []greedyCommand{
		{name: "the last of the disk", argv: probing("many", "WS", "120", "1000000"),
			limits: Limits{Memory: -1, KeepFree: free - 40<<20}, want: []string{LimitFree}},
		{name: "fork bomb", limits: Limits{Processes: 200}, want: []string{LimitProcesses},
			// It stops at 4,096 processes if nothing else stops it.
			argv: shell(`b() { test $1 = 12 && sleep 9; b $(($1+1)) & b $(($1+1)) & wait; }; b 1`)},
		{name: "processes", argv: probing("spawn", "60"),
			limits: Limits{Memory: -1, Processes: 30}, want: []string{LimitProcesses}},
		// The first look gives a process its own limit. A process that is faster meets the common
		// limit.
		{name: "memory of one process", argv: shell(`head -c 100M /dev/zero | tail >/dev/null`),
			limits: Limits{Memory: 50 << 20}, want: []string{LimitMemory, "exit"}},
		{name: "memory of several", want: []string{LimitMemory}, argv: shell(`for i in 1 2 3 4; ` +
			`do (head -c 30M /dev/zero; sleep $HOLD; echo) | tail >/dev/null & done; wait`),
			limits: Limits{Memory: 50 << 20}},
		{name: "shared memory", argv: probing("shared", "160000000"),
			limits: Limits{Memory: 80 << 20}, want: []string{LimitMemory, "exit"}},
		{name: "a big file", argv: shell(`head -c 20M /dev/zero > big; test $(wc -c < big) = 20971520`),
			limits: Limits{Memory: -1, FileSize: 1 << 20}, max: 1 << 20},
		{name: "a big file at once", argv: shell(`exec head -c 20M /dev/zero > big`),
			limits: Limits{Memory: -1, FileSize: 1 << 20}, max: 1 << 20,
			want: []string{LimitFileSize}},
		{name: "files", argv: probing("many", "WS", "60", "1000000"),
			limits: Limits{Memory: -1, Disk: 20 << 20}, want: []string{LimitDisk}},
		{name: "files that are too deep for a path", limits: Limits{Memory: -1, Disk: 20 << 20},
			want: []string{LimitDisk},
			argv: shell(`d=$(printf %0200d 0); for i in $(seq 30); do mkdir $d && cd -P $d || exit 3; ` +
				`done; for i in 1 2 3 4 5 6; do head -c 10M /dev/zero > f$i || exit 3; done; sleep $HOLD`)},
		{name: "small files", argv: probing("many", "WS", "1000", "1"),
			limits: Limits{Memory: -1, Files: 200}, want: []string{LimitFiles}},
		{name: "files without names", argv: probing("unlinked", "WS", "60"),
			limits: Limits{Memory: -1, Disk: 20 << 20}, want: []string{LimitDisk}},
		{name: "processor", limits: Limits{CPU: time.Second}, want: []string{LimitCPU},
			argv: shell(`while :; do n=$((n+1)); test $n -gt $((HOLD*100000)) && exit; done`)},
		{name: "temporary files", limits: Limits{Disk: 20 << 20, Temporary: 20 << 20},
			want: []string{LimitDisk, "exit"},
			argv: shell(`cd $TMPDIR && for i in 1 2 3 4 5 6; do head -c 10M /dev/zero > f$i || exit 3; ` +
				`done; sleep $HOLD`)},
		{name: "open files", limits: Limits{OpenFiles: 20},
			argv: shell(`exec bash -c 'for i in {1..50}; do exec {f}</dev/null || exit 1; done'`)},
	}
	for _, g := range gluttons {
		t.Run(g.name, func(t *testing.T) {
			for _, mode := range []string{Bubblewrap, Landlock} {
				t.Run(mode, func(t *testing.T) {
					if g.limits.CPU > 0 {
						t.Parallel() // only its own CPU time counts
					}
					g.starve(t, find(t, mode))
				})
			}
		})
	}
	for _, g := range gluttons {
		t.Run(g.name+" control", func(t *testing.T) {
			t.Parallel() // most of them only wait
			g.feed(t)
		})
	}
}

// spec returns a command that keeps its resources for hold seconds.
func (g *greedyCommand) spec(w *world, hold int) Spec {
	spec := w.spec()
	spec.Argv, spec.Limits = g.argv(w), g.limits
	spec.Env = append(spec.Env, fmt.Sprintf("%s=%d", holdVar, hold))
	return spec
}

// starve runs the greedyCommand with its limits.
func (g *greedyCommand) starve(t *testing.T, s *Sandbox) {
	t.Helper()
	w := newWorld(t)
	output, o := run(t, s, g.spec(w, 120)) // a limit ends it much earlier
	ok := o.Exit != 0 && o.Limit == "" && (len(g.want) == 0 || slices.Contains(g.want, "exit"))
	if strings.HasPrefix(output, held) { // the kernel refused what the probe tried
		ok = slices.Contains(g.want, "exit")
	}
	if o.Limit != "" {
		ok = slices.Contains(g.want, o.Limit)
	}
	if !ok || o.Err != "" {
		t.Errorf("it ended with %+v, want one of the limits %q\n%s", o, g.want, output)
	}
	if g.max > 0 && size(t, w.ws) > g.max {
		t.Errorf("it left %d bytes, want %d at most", size(t, w.ws), g.max)
	}
	if pids := left(w.dir); len(pids) > 0 {
		t.Errorf("the processes %d are left", pids)
	}
}

// feed runs the greedyCommand without limits, except for the fork bomb, which would never end.
func (g *greedyCommand) feed(t *testing.T) {
	t.Helper()
	if g.name == "fork bomb" {
		return // "processes" is the harmless form of it
	}
	w := newWorld(t)
	spec := g.spec(w, 1)
	spec.Limits = Limits{Memory: -1, Processes: -1, CPU: -1, FileSize: -1, Disk: -1, Files: -1}
	output, o := run(t, find(t, None), spec)
	if o.Exit != 0 || o.Limit != "" || o.Err != "" || strings.HasPrefix(output, held) {
		t.Errorf("without limits it ended with %+v\n%s", o, output)
	}
}

// If a command has taken the permissions of a folder away, what the disk has lost counts instead of
// the files in it.
func TestClosedFolder(t *testing.T) {
	dir, err := os.MkdirTemp("", "gateway-test-") // another user can reach this folder
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // an error leaves it to the system
	closed := filepath.Join(dir, "closed")
	err = errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(filepath.Join(closed, "below"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	lost := space{1 << 40, 1 << 40}
	written := func(mode os.FileMode) (sum space) {
		if err := os.Chmod(closed, mode); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if os.Geteuid() == 0 { // permissions do not matter to root
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				_ = unix.Setfsuid(65534)
			}
			w := watch{folders: []string{dir}, begun: time.Now()}
			sum = w.written(nil, lost)
		}()
		<-done
		return sum
	}
	for _, mode := range []os.FileMode{0, 0o444} {
		if sum := written(mode); sum != lost {
			t.Errorf("with the mode %#o %+v were written, want %+v", mode, sum, lost)
		}
	}
	if sum := written(0o755); sum.bytes == lost.bytes || sum.files != 3 {
		t.Errorf("in an open folder %+v were written, want three files", sum)
	}
}

// On a disk that is almost full, a command that writes little or removes files still runs.
func TestKeepFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.spec()
	spec.Limits.KeepFree = 1 << 60
	spec.Argv = []string{"/bin/sh", "-c", "echo x > a; sleep 0.5; rm a; echo done"}
	for _, mode := range []string{Bubblewrap, Landlock} {
		if output, o := run(t, find(t, mode), spec); o.Limit != "" || output != "done\n" {
			t.Errorf("%s: it ended with %+v: %s", mode, o, output)
		}
	}
}

// TestNothingSurvives checks that no process is left when the command has ended, even if a
// process tries to escape.
func TestNothingSurvives(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"nohup", "setsid", "double"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []string{Bubblewrap, Landlock, None} {
				t.Run(mode, func(t *testing.T) {
					w := newWorld(t)
					if got, output := w.probe(t, find(t, mode), "daemon", how, w.in("beat")); !got {
						t.Fatalf("the daemon did not start: %s", output)
					}
					if pids := left(w.dir); len(pids) > 0 {
						t.Errorf("the processes %d are left", pids)
					}
					w.still(t)
				})
			}
			t.Run("control", func(t *testing.T) {
				w := newWorld(t)
				c := exec.Command(w.self, escapeArgument, "daemon", how, w.in("beat"))
				if out, err := c.Output(); err != nil || !strings.HasPrefix(string(out), escaped) {
					t.Fatalf("the daemon did not start: %s %v", out, err)
				}
				pids := left(w.dir)
				if len(pids) == 0 {
					t.Error("without a supervisor no process is left either")
				}
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended already
				}
			})
		})
	}
}

// still fails the test if the daemon still writes to its file.
func (w *world) still(t *testing.T) {
	t.Helper()
	n := size(t, w.ws)
	if n == 0 {
		t.Fatal("the heart never beat")
	}
	time.Sleep(100 * time.Millisecond) // enough time for ten beats
	if now := size(t, w.ws); now != n {
		t.Errorf("the heart still beats: %d bytes, and now %d", n, now)
	}
}

// TestGatewayKilled checks that all processes end with the gateway, even if it is killed.
func TestGatewayKilled(t *testing.T) {
	for _, mode := range []string{Bubblewrap, Landlock, None} {
		t.Run(mode, func(t *testing.T) {
			find(t, mode) // or skip the test
			w := newWorld(t)
			gateway := exec.Command(w.self, escapeArgument, "nest", mode, w.ws)
			if err := gateway.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = gateway.Wait() }() // an error is expected: it was killed
			eventually(t, "the heart beats", func() bool { return size(t, w.ws) > 0 })
			if len(left(w.ws)) < 2 {
				t.Errorf("the processes are %d, want a shell and a daemon at least", left(w.ws))
			}
			if err := gateway.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = gateway.Wait() // an error is expected: it was killed
			eventually(t, "nothing is left", func() bool { return len(left(w.ws)) == 0 })
			w.still(t)
		})
	}
}

// TestSupervisorKilled kills the supervisor of a command. It checks that no process of the
// command is left once Outcome is called, and that another command keeps running.
func TestSupervisorKilled(t *testing.T) {
	for _, mode := range []string{Bubblewrap, Landlock} {
		t.Run(mode, func(t *testing.T) {
			s := find(t, mode)
			start := func() (*world, *Command) {
				w := newWorld(t)
				spec := w.spec()
				spec.Argv = []string{"/bin/sh", "-c", `setsid "$@" & sleep 60; exit 0`, "sh",
					w.self, escapeArgument, "beat", w.in("beat")}
				c, err := s.Command(t.Context(), spec)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the heart beats", func() bool { return size(t, w.ws) > 0 })
				return w, c
			}
			other, running := start()
			var w *world
			var c *Command
			// Another gateway or test on this machine may end the orphans first.
			for try := 1; ; try++ {
				w, c = start()
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = c.Wait() // an error is expected: it was killed
				if mode == Bubblewrap || len(left(w.ws)) > 0 {
					break
				}
				if try == 10 {
					t.Fatal("nothing is left at once; the test shows nothing")
				}
			}
			if o, err := c.Outcome(); err == nil {
				t.Errorf("Outcome = %+v, want an error", o)
			}
			eventually(t, "nothing is left", func() bool { return len(left(w.ws)) == 0 })
			w.still(t)
			if EndOrphans(); len(left(other.ws)) == 0 {
				t.Error("a command with a supervisor was ended")
			}
			if err := running.Close(); err != nil {
				t.Error(err)
			}
			_ = running.Wait() // an error is expected: it was ended
		})
	}
}

// TestCancel checks that all processes of a command end when the context ends, on Close and on a
// signal.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{Bubblewrap, Landlock, None} {
		for _, how := range []string{"cancel", "close", "signal"} {
			t.Run(mode+" "+how, func(t *testing.T) {
				t.Parallel()
				w, s := newWorld(t), find(t, mode)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				spec := w.spec()
				spec.Argv = []string{"/bin/sh", "-c", `setsid "$@" & sleep 60; exit 0`, "sh",
					w.self, escapeArgument, "beat", w.in("beat")}
				c, err := s.Command(ctx, spec)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the heart beats", func() bool { return size(t, w.ws) > 0 })
				switch how {
				case "cancel":
					cancel()
				case "close":
					if err := c.life.Close(); err != nil {
						t.Error(err)
					}
				case "signal":
					if err := c.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
				if err := c.Wait(); err == nil {
					t.Error("Wait returned no error")
				}
				if o, err := c.Outcome(); err != nil || o.Exit == 0 {
					t.Errorf("Outcome = %+v, %v; want a failure", o, err)
				}
				if pids := left(w.ws); len(pids) > 0 {
					t.Errorf("the processes %d are left", pids)
				}
				w.still(t)
			})
		}
	}
}

// TestTemporary checks that the temporary files of a command are removed.
func TestTemporary(t *testing.T) {
	for _, mode := range []string{Bubblewrap, Landlock, None} {
		t.Run(mode, func(t *testing.T) {
			w, s := newWorld(t), find(t, mode)
			spec := w.spec()
			name := "left-" + strconv.Itoa(os.Getpid()) // in bubblewrap, the command sees its folder as /tmp
			spec.Argv = []string{"/bin/sh", "-c", `set -e; cd "$TMPDIR"; mkdir -p "$0/b"; ` +
				`echo x > "$0/b/c"; chmod 0 "$0"; echo "$TMPDIR"`, name}
			output, o := run(t, s, spec)
			if o.Exit != 0 {
				t.Fatalf("it ended with %+v: %s", o, output)
			}
			tmp := strings.TrimSpace(output)
			if matches, _ := filepath.Glob(filepath.Join(tmp, name)); len(matches) > 0 {
				t.Errorf("%s is left", matches)
			}
		})
	}
}
