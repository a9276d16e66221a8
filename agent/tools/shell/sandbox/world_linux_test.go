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

// A world is a workspace with what is around it, and must stay out of reach.
type world struct {
	dir    string // holds all the rest
	ws     string // the workspace
	config string // beside it, readable for everybody
	home   string // a file in the home
	secret string // what config and home hold
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

// untouched reports what has become of the files outside.
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

// spec returns what runs a probe in this world.
func (w *world) spec(args ...string) Spec {
	return Spec{
		Argv:     append([]string{w.self, escapeArgument}, args...),
		ReadOnly: []string{w.self}, ReadWrite: []string{w.ws},
		// For builds that look for races.
		Limits: Limits{Memory: -1}, Env: []string{"GORACE=atexit_sleep_ms=0"},
	}
}

// run runs a command and returns what it says and how it ended.
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

// runs reports whether a probe ran to its end, and whether it got out.
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

// sandboxes runs a test with every back-end that must hold.
func sandboxes(t *testing.T, test func(t *testing.T, s *Sandbox)) {
	t.Helper()
	for _, mode := range []string{Bubblewrap, Landlock, oldLandlock} {
		t.Run(mode, func(t *testing.T) { test(t, find(t, mode)) })
	}
}

const oldLandlock = "old Landlock"

// find returns a sandbox. Only for want of bubblewrap may a test be left out.
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

// found are the sandboxes, each found once: the self-tests take their time.
var found = map[string]func() (*Sandbox, error){
	None:       sync.OnceValues(func() (*Sandbox, error) { return findMode(None) }),
	Bubblewrap: sync.OnceValues(func() (*Sandbox, error) { return findMode(Bubblewrap) }),
	Landlock:   sync.OnceValues(func() (*Sandbox, error) { return findMode(Landlock) }),
	oldLandlock: sync.OnceValues(func() (*Sandbox, error) { // as on the oldest kernel that will do
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

// bystander starts a process of somebody else with a secret in its environment.
func (w *world) bystander(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.Env = []string{"SECRET=" + w.secret}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // a test may have ended it
		_ = c.Wait()
	})
	return c
}

// left returns the processes that have text in their command line or the folder that they are in.
func left(text string) (pids []int) {
	entries, _ := os.ReadDir("/proc") // the test fails if it is empty
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		dir, _ := os.Readlink("/proc/" + e.Name() + "/cwd") // none if it has ended
		if err == nil && len(line) > 0 && (bytes.Contains(line, []byte(text)) ||
			strings.HasPrefix(dir, text)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually waits until ok holds.
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

// size returns how much all files below dir hold together.
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
