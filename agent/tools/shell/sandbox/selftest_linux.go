//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// testTimeout bounds the self-test. The test takes a fraction of a second, and a hundred times as
// long on a busy machine.
const testTimeout = time.Minute

// A trial is the environment of a self-test: files in and beside a workspace, a read-only folder,
// and a listening socket. Without a sandbox the probe could access all of them.
type trial struct {
	dir      string // has the workspace and the files outside of it
	listener net.Listener
	secret   string
}

// A task is the probe's input.
type task struct {
	Inside, Outside, Write string // files to read, and one to write
	Shared                 string // folder that must be read-only
	Address                string // to connect to
	Secret                 string // must not be in its environment
}

// A finding lists the accesses in which the probe succeeded.
type finding struct {
	Inside     string // content of the file inside
	Shared     string // content of the shared document, read after its replacement
	Outside    string // content of the file outside
	Connect    bool
	Sockets    []string // kinds of sockets that it could create
	Secret     bool     // the secret is in its environment
	Environ    []int    // processes whose environment it could read
	Caps       bool     // it has a capability
	Privileges bool     // it can gain privileges
	Filter     bool     // it has a seccomp filter
	Files      []int    // open files beside the three standard ones
}

// trialPattern is the pattern for the names of trials in the temporary folder.
const trialPattern = "gateway-sandbox-test-*"

// newTrial creates a trial. It first removes trials that a killed process has left.
func newTrial() (*trial, error) {
	left, _ := fs.Glob(os.DirFS(os.TempDir()), trialPattern) // a bad folder fails below
	for _, name := range left {
		old := filepath.Join(os.TempDir(), name)
		if info, err := os.Lstat(old); err == nil && time.Since(info.ModTime()) > 2*testTimeout {
			_ = os.RemoveAll(old) // it may belong to another user
		}
	}
	dir, err := os.MkdirTemp("", trialPattern)
	if err != nil {
		return nil, err
	}
	t := &trial{dir: dir, secret: rand.Text()}
	err = errors.Join(
		os.Mkdir(t.path("inside"), 0o700),
		os.WriteFile(t.path("inside", "file"), []byte(t.secret), 0o600),
		os.Mkdir(t.path("shared"), 0o700),
		os.Mkdir(t.path("shared", sharedSkills), 0o700),
		os.WriteFile(t.path("shared", sharedDocument), []byte("old"), 0o600),
		// Everybody may read the canary, so only the sandbox can prevent it.
		os.WriteFile(t.path("canary"), []byte(t.secret), 0o644),
		os.Chmod(dir, 0o755),
	)
	if err == nil {
		t.listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *trial) path(names ...string) string {
	return filepath.Join(append([]string{t.dir}, names...)...)
}

func (t *trial) close() error {
	var err error
	if t.listener != nil {
		err = t.listener.Close()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// run runs the probe in the sandbox.
func (t *trial) run(ctx context.Context, s *Sandbox) (found finding, err error) {
	program, err := filepath.EvalSymlinks(s.self)
	if err != nil {
		return found, fmt.Errorf("the gateway's own file: %w", err)
	}
	text, err := json.Marshal(task{
		Inside: t.path("inside", "file"), Outside: t.path("canary"), Write: t.path("written"),
		Shared:  t.path("shared"),
		Address: t.listener.Addr().String(), Secret: t.secret,
	})
	if err != nil {
		return found, err
	}
	c, err := s.Command(ctx, Spec{
		Argv:      []string{program, Argument, "probe", string(text)},
		ReadOnly:  []string{program, t.path("shared")},
		ReadWrite: []string{t.path("inside")},
		// A build with the race detector needs more memory than any fixed limit. The test is short.
		Limits: Limits{Memory: -1}, Env: []string{"GORACE=atexit_sleep_ms=0"},
	})
	if err != nil {
		return found, err
	}
	in, more, err := os.Pipe()
	if err != nil {
		return found, err
	}
	var stderr bytes.Buffer
	stdout := &triggerWriter{do: func() error {
		return errors.Join(t.replace(), more.Close())
	}}
	c.Stdin, c.Stdout, c.Stderr = in, stdout, &stderr
	c.Env = append(c.Env, "CANARY="+t.secret) // for the supervisor, not the probe
	err = c.Run()
	_, _ = in.Close(), more.Close() // after a success, more is closed already
	o, oerr := c.Outcome()
	if err = errors.Join(err, oerr); o.Err != "" {
		err = errors.New(o.Err)
	}
	if err != nil {
		return found, fmt.Errorf("the probe did not run: %s %s", err,
			strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.output.Bytes(), &found); err != nil {
		return found, fmt.Errorf("the probe says nothing: %w", err)
	}
	if found.Inside != t.secret || found.Shared != t.secret {
		return found, errors.New("the probe can't read a file in the workspace, or in the shared folder")
	}
	return found, nil
}

// The contents of a trial's shared folder.
const (
	sharedDocument = "AGENTS.md"
	sharedSkills   = "skills"
)

// replace replaces the shared document in the way that the gateway and editors do: it renames
// another file over it. This detaches the mount of a single file.
func (t *trial) replace() error {
	fresh := t.path("shared", ".new")
	return errors.Join(os.WriteFile(fresh, []byte(t.secret), 0o600),
		os.Rename(fresh, t.path("shared", sharedDocument)))
}

// untouched reports whether the shared folder still has the content that [trial.replace] wrote.
func (t *trial) untouched() bool {
	names := func(dir string) (list []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return []string{err.Error()}
		}
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	return content(t.path("shared", sharedDocument)) == t.secret &&
		slices.Equal(names(t.path("shared")), []string{sharedDocument, sharedSkills}) &&
		len(names(t.path("shared", sharedSkills))) == 0
}

// A triggerWriter writer stores the probe's output. It calls do once, after the first line, which
// the probe writes when it runs.
type triggerWriter struct {
	output bytes.Buffer
	do     func() error
	done   bool
}

// Write implements io.Writer.
func (r *triggerWriter) Write(p []byte) (int, error) {
	r.output.Write(p)
	if _, rest, ok := bytes.Cut(r.output.Bytes(), []byte("\n")); ok && !r.done {
		r.done = true
		r.output = *bytes.NewBuffer(bytes.Clone(rest))
		return len(p), r.do()
	}
	return len(p), nil
}

// assess returns the properties that the findings prove, or an error that lists the possible
// escapes.
func (t *trial) assess(f finding) (passed []string, err error) {
	if err := t.control(); err != nil {
		return nil, fmt.Errorf("it can't tell: %w", err)
	}
	_, lost := os.Stat(t.path("written"))
	var open []string
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"a file outside can't be read", f.Outside == ""},
		{"a file outside can't be written", lost != nil},
		{"the shared documents can't be written, also after they were replaced", t.untouched()},
		{"a TCP server can't be reached", !f.Connect},
		{"no socket can be created", len(f.Sockets) == 0},
		{"the gateway's environment is not inherited", !f.Secret},
		{"the environment of other processes can't be read", len(f.Environ) == 0},
		{"there are no capabilities", !f.Caps},
		{"there are no new privileges", !f.Privileges},
		{"system calls are filtered", f.Filter},
		{"no files are inherited", len(f.Files) == 0},
	} {
		if c.ok {
			passed = append(passed, c.what)
		} else {
			open = append(open, c.what)
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("it could not prove that %s", strings.Join(open, ", that "))
	}
	return passed, nil
}

// control proves that the probe could access the canary and the socket without a sandbox.
func (t *trial) control() error {
	text, err := os.ReadFile(t.path("canary"))
	if err != nil || string(text) != t.secret {
		return fmt.Errorf("the file outside can't be read by anyone: %w", err)
	}
	c, err := net.DialTimeout("tcp", t.listener.Addr().String(), testTimeout)
	if err != nil {
		return fmt.Errorf("the TCP server can't be reached by anyone: %w", err)
	}
	return c.Close()
}

// probe runs in a sandbox. It tries the accesses that the sandbox must refuse, and writes its
// findings.
func probe(text string) int {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		fmt.Fprintln(os.Stderr, "gateway: probe:", err)
		return exitUsage
	}
	writeShared(t.Shared)
	fmt.Println("it runs")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the shared document was replaced
	f := finding{Inside: content(t.Inside), Outside: content(t.Outside),
		Shared: content(filepath.Join(t.Shared, sharedDocument))}
	writeShared(t.Shared)
	// With bubblewrap this may succeed, but in a private folder.
	_ = os.WriteFile(t.Write, []byte("probe"), 0o600) // assess tests whether the file exists
	if c, err := net.DialTimeout("tcp", t.Address, time.Second); err == nil {
		f.Connect = true
		_ = c.Close() // nothing was written
	}
	for name, family := range map[string]int{
		"IPv4": unix.AF_INET, "IPv6": unix.AF_INET6, "UNIX": unix.AF_UNIX,
		"netlink": unix.AF_NETLINK, "packet": unix.AF_PACKET, "vsock": unix.AF_VSOCK,
	} {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW} {
			if fd, err := unix.Socket(family, kind, 0); err == nil {
				f.Sockets = append(f.Sockets, name)
				_ = unix.Close(fd) // nothing was written
			}
		}
	}
	f.Secret = slices.ContainsFunc(os.Environ(), func(e string) bool {
		return strings.Contains(e, t.Secret)
	})
	f.recordPrivileges(t)
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		return exitTrouble
	}
	return 0
}

// writeShared tries every way to change the shared folder. [trial.untouched] checks the result.
func writeShared(dir string) {
	document, evil := filepath.Join(dir, sharedDocument), filepath.Join(dir, "evil")
	if f, err := os.OpenFile(document, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		_, _ = f.WriteString("probe") // untouched checks the result
		_ = f.Close()
	}
	_ = os.WriteFile(evil, []byte("probe"), 0o600)
	_ = os.Rename(evil, document)
	_ = os.Mkdir(filepath.Join(dir, sharedSkills, "evil"), 0o700)
	_ = os.Rename(filepath.Join(dir, sharedSkills), filepath.Join(dir, "moved"))
	_ = os.Truncate(document, 0)
	_ = os.Remove(document)
}

func content(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

// recordPrivileges records the probe's privileges and the processes that it sees.
func (f *finding) recordPrivileges(t task) {
	// The supervisor has the secret in its environment.
	for _, pid := range append(processes(), os.Getppid()) {
		text := content("/proc/" + strconv.Itoa(pid) + "/environ")
		if pid != os.Getpid() && strings.Contains(text, t.Secret) {
			f.Environ = append(f.Environ, pid)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	f.Caps = true
	if unix.Capget(&header, &data[0]) == nil {
		f.Caps = data != [2]unix.CapUserData{}
	}
	none, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	f.Privileges = err != nil || none != 1
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	f.Filter = err == nil && mode == unix.SECCOMP_MODE_FILTER
	for fd := 3; fd < 256; fd++ { // the Go runtime's own files are closed on exec
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			f.Files = append(f.Files, fd)
		}
	}
}
