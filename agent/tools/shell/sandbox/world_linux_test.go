//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A world is a workspace with files around it that a command must not reach.
type world struct {
	dir    string // the folder that contains the workspace and config
	ws     string // the workspace
	config string // beside the workspace, readable for everybody
	home   string // a file in the home directory
	secret string // the content of config and home
	self   string // the test binary
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{secret: "secret-" + rand.Text()}
	w.dir = t.TempDir()
	w.ws = filepath.Join(w.dir, "workspace")
	w.config = filepath.Join(w.dir, "config.toml")
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(home, ".gateway-sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	w.home = f.Name()
	t.Cleanup(func() { _ = os.Remove(w.home) }) // a test may have removed it
	w.self, err = os.Executable()
	if err := errors.Join(err, f.Close(), os.Mkdir(w.ws, 0o755), os.Chmod(w.dir, 0o755),
		os.WriteFile(w.config, []byte(w.secret), 0o644),
		os.WriteFile(w.home, []byte(w.secret), 0o644), os.Chmod(w.home, 0o644)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) in(name string) string { return filepath.Join(w.ws, name) }

// untouched returns an error if a file outside the workspace was changed.
func (w *world) untouched() error {
	for _, path := range []string{w.config, w.home} {
		text, err := os.ReadFile(path)
		if err != nil || string(text) != w.secret {
			return fmt.Errorf("%s is now %q, %v", path, text, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o644 || time.Since(info.ModTime()) > time.Hour {
			return fmt.Errorf("%s is now %+v, %v", path, info, err)
		}
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil || int(stat.Uid) != os.Getuid() {
			return fmt.Errorf("%s now belongs to %d, %v", path, stat.Uid, err)
		}
		if n, _ := unix.Getxattr(path, "user.test", nil); n > 0 {
			return fmt.Errorf("%s has now an attribute", path)
		}
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil || len(entries) != 2 {
		return fmt.Errorf("beside the workspace there is now %v, %v", entries, err)
	}
	return nil
}

// spec returns the command that runs a probe in this world.
func (w *world) spec(args ...string) Spec {
	return Spec{
		Argv:     append([]string{w.self, escapeArgument}, args...),
		ReadOnly: []string{w.self}, ReadWrite: []string{w.ws},
		// GORACE is for builds with the race detector.
		Limits: Limits{Memory: -1}, Env: []string{"GORACE=atexit_sleep_ms=0"},
	}
}

// run runs a command and returns its output and outcome.
func run(t *testing.T, s *Sandbox, spec Spec) (string, Outcome) {
	t.Helper()
	c, err := s.Command(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	runErr := c.Run()
	o, err := c.Outcome()
	if err != nil {
		t.Fatalf("Outcome: %v; the command: %v\n%s", err, runErr, out.String())
	}
	return out.String(), o
}

// probe runs a probe and reports whether it got out. It fails the test if the probe did not run
// to its end.
func (w *world) probe(t *testing.T, s *Sandbox, args ...string) (out bool, output string) {
	t.Helper()
	output, o := run(t, s, w.spec(args...))
	if o.Exit != 0 || o.Limit != "" || o.Err != "" {
		t.Fatalf("the probe did not run: %+v\n%s", o, output)
	}
	switch {
	case strings.HasPrefix(output, escaped):
		return true, output
	case strings.HasPrefix(output, held):
		return false, output
	}
	t.Fatalf("the probe said %q", output)
	return false, ""
}

// sandboxes runs a test in each kind of sandbox.
func sandboxes(t *testing.T, test func(t *testing.T, s *Sandbox)) {
	t.Helper()
	for _, mode := range []string{Bubblewrap, Landlock, oldLandlock} {
		t.Run(mode, func(t *testing.T) { test(t, find(t, mode)) })
	}
}

const oldLandlock = "old Landlock"

// find returns a sandbox. It skips the test if bubblewrap is not installed, except in CI.
func find(t *testing.T, mode string) *Sandbox {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); mode == Bubblewrap && err != nil &&
		os.Getenv("CI") != "true" {
		t.Skip("bubblewrap is not installed")
	}
	s, err := found[mode]()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// found creates each sandbox once, because the self-tests take time.
var found = map[string]func() (*Sandbox, error){
	None:       sync.OnceValues(func() (*Sandbox, error) { return findMode(None) }),
	Bubblewrap: sync.OnceValues(func() (*Sandbox, error) { return findMode(Bubblewrap) }),
	Landlock:   sync.OnceValues(func() (*Sandbox, error) { return findMode(Landlock) }),
	oldLandlock: sync.OnceValues(func() (*Sandbox, error) { // as on the oldest supported kernel
		s, err := findMode(Landlock)
		if err != nil {
			return nil, err
		}
		s.setABI(leastABI)
		return s, s.test(context.Background())
	}),
}

func findMode(mode string) (*Sandbox, error) {
	return Find(context.Background(), Options{Mode: mode})
}

// bystander starts another process with a secret in its environment.
func (w *world) bystander(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.Env = []string{"SECRET=" + w.secret}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // a test may have ended it already
		_ = c.Wait()
	})
	return c
}

// left returns the processes that have text in their command line or run in a folder that begins
// with it.
func left(text string) (pids []int) {
	entries, _ := os.ReadDir("/proc") // the test fails if it is empty
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		dir, _ := os.Readlink("/proc/" + e.Name() + "/cwd") // empty if the process has ended
		if err == nil && len(line) > 0 && (bytes.Contains(line, []byte(text)) ||
			strings.HasPrefix(dir, text)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually waits until ok returns true. It fails the test after three minutes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 18_000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: it never came to that", what)
}

// size returns the total size of all files below dir.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
