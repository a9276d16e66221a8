//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func TestFind(t *testing.T) {
	s, err := Find(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Name() != Bubblewrap && s.Name() != Landlock {
		t.Errorf("Find chose %s, want a sandbox", s.Name())
	}
	if r := s.Report(); r.Mode != s.Name() || len(r.Passed) != 11 {
		t.Errorf("the report of %s is %+v, want eleven proofs", s, r)
	}
	if r := find(t, None).Report(); len(r.Passed) != 0 {
		t.Errorf("without a sandbox the report is %+v, want no proof", r)
	}
}

// TestFallback checks that Find returns Landlock where bubblewrap does not work, as in a
// container without user namespaces. The report must say why.
func TestFallback(t *testing.T) {
	for _, bwrap := range []string{"/nonexistent/bwrap", "/bin/false", "/bin/true"} {
		s, err := Find(t.Context(), Options{Bubblewrap: bwrap})
		if err != nil || s.Name() != Landlock {
			t.Fatalf("with %s for bwrap, Find = %v, %v; want %s", bwrap, s, err, Landlock)
		}
		if r := s.Report(); len(r.Others) != 1 || !strings.HasPrefix(r.Others[0], "bubblewrap: ") {
			t.Errorf("with %s for bwrap, the report is %+v", bwrap, r)
		}
	}
}

func TestFindFails(t *testing.T) {
	_, err := Find(t.Context(), Options{Mode: "chroot"})
	want := `sandbox: there is no mode "chroot"; want auto, bubblewrap, landlock or none`
	if err == nil || err.Error() != want {
		t.Errorf("Find = %v, want %s", err, want)
	}
	for _, o := range []Options{
		{Mode: Bubblewrap, Bubblewrap: "/nonexistent/bwrap"},
		{Mode: Bubblewrap, Bubblewrap: "/bin/false"}, // it does nothing
		{Mode: Bubblewrap, Bubblewrap: "/bin/true"},  // it does nothing and reports success
		{Mode: Landlock, Self: "/bin/true"},
		{Self: "/bin/true"},
		{Mode: None, Self: "/bin/false"},
	} {
		if s, err := Find(t.Context(), o); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Find(%+v) = %v, %v; want %v", o, s, err, ErrUnavailable)
		}
	}
}

// A self-test removes what a killed process has left of another one, unless that may still run.
func TestSelfTestLeftovers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	old, fresh, other := filepath.Join(os.TempDir(), "gateway-sandbox-test-1"),
		filepath.Join(os.TempDir(), "gateway-sandbox-test-2"),
		filepath.Join(os.TempDir(), "gateway-sandbox-3")
	for _, dir := range []string{old, fresh, other} {
		if err := os.MkdirAll(filepath.Join(dir, "inside"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	longAgo := time.Now().Add(-time.Hour)
	err := errors.Join(os.Chtimes(old, longAgo, longAgo), os.Chtimes(other, longAgo, longAgo))
	if err != nil {
		t.Fatal(err)
	}
	trial, err := newTrial()
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err = errors.Join(err, trial.close()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, filepath.Join(os.TempDir(), e.Name()))
	}
	want := []string{fresh, other, trial.dir}
	if slices.Sort(want); !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
}

// TestSelfTest checks that the self-test notices each hole.
func TestSelfTest(t *testing.T) {
	trial, err := newTrial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := trial.close(); err != nil {
			t.Error(err)
		}
	}()
	found, err := trial.run(t.Context(), find(t, None))
	if err != nil {
		t.Fatal(err)
	}
	_, err = trial.assess(found)
	if err == nil {
		t.Fatal("no sandbox at all passes the self-test")
	}
	for _, hole := range []string{"can't be read", "can't be written", "shared", "TCP server",
		"no socket", "new privileges", "filtered"} {
		if !strings.Contains(err.Error(), hole) {
			t.Errorf("without a sandbox the self-test does not say %q: %v", hole, err)
		}
	}
	write := func(name string) {
		if err := os.WriteFile(trial.path("shared", name), []byte("evil"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, open := range map[string]func(*finding){
		"shared document": func(*finding) { write(sharedDocument) },
		"shared folder":   func(*finding) { write("new") },
		"shared skills":   func(*finding) { write(sharedSkills + "/new") },

		"read":   func(f *finding) { f.Outside = trial.secret },
		"tcp":    func(f *finding) { f.Connect = true },
		"socket": func(f *finding) { f.Sockets = []string{"UNIX"} },
		"env":    func(f *finding) { f.Secret = true },
		"proc":   func(f *finding) { f.Environ = []int{1} },
		"caps":   func(f *finding) { f.Caps = true },
		"privs":  func(f *finding) { f.Privileges = true },
		"filter": func(f *finding) { f.Filter = false },
		"files":  func(f *finding) { f.Files = []int{7} },
	} {
		if err := os.Remove(trial.path("written")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		shared := trial.path("shared") // without a sandbox, the run has destroyed it
		if err := errors.Join(os.RemoveAll(shared), os.MkdirAll(shared+"/"+sharedSkills, 0o700),
			trial.replace()); err != nil {
			t.Fatal(err)
		}
		f := finding{Inside: trial.secret, Filter: true}
		if _, err := trial.assess(f); err != nil {
			t.Fatalf("what is held does not pass: %v", err)
		}
		open(&f)
		if passed, err := trial.assess(f); err == nil {
			t.Errorf("%s: the hole was not seen: %q", name, passed)
		}
	}
}

// TestWork checks that everyday work is possible within the sandbox.
func TestWork(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"read and write": `echo hello > a && cat a && echo more >> a && wc -l < a`,
		"folders": `mkdir -p x/y && echo 1 > x/f && mv x/f x/y/g && ln x/y/g h && cat h ` +
			`&& rm -r x`,
		"links": `echo 1 > f && ln -s f l && cat l && readlink l`,
		"modes": `printf '#!/bin/sh\necho ran\n' > s && chmod +x s && ./s && ` +
			`chmod 640 s && test "$(stat -c %a s)" = 640`,
		"times": `touch -d '2001-02-03 04:05:06Z' f && test "$(stat -c %Y f)" = 981173106 && touch f ` +
			`&& test "$(stat -c %Y f)" -gt 981173106`,
		"copies": `mkdir d && echo 1 > d/f && chmod 604 d/f && cp -a d e ` +
			`&& test "$(stat -c %a e/f)" = 604`,
		"owners": `echo 1 > f && chown $(id -u):$(id -g) f`,
		"archives": `mkdir d && echo 1 > d/f && tar czf a.tgz d && rm -r d && tar xzf a.tgz ` +
			`&& cat d/f`,
		"git": `git init -q . && git config user.name x && git config user.email x@x && ` +
			`echo 1 > f && git add f && git commit -qm first && git log --oneline | wc -l`,
		"temporary": `f=$(mktemp) && echo 1 > $f && cat $f && test -w "$TMPDIR"`,
		"devices":   `echo x > /dev/null && head -c 4 /dev/urandom | wc -c && echo e >&2`,
		"pipes":     `yes | head -1000 | sort -u | wc -l`,
		"jobs":      `sleep 60 & kill $! && wait $! || test $? = 143`,
		"home":      `test "$HOME" = "$PWD" && cd && pwd`,
		"programs": `ls /usr/bin | grep -c . && awk 'BEGIN { print 1 }' ` +
			`&& sed s/a/b/ /etc/passwd | head -1`,
		"read-only": `cat "$EXTRA" && ! echo x >> "$EXTRA"`,
		"threads":   `xz -T2 -k -c /etc/passwd > p.xz && xz -d < p.xz | cmp - /etc/passwd`,
	}
	sandboxes(t, func(t *testing.T, s *Sandbox) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				spec := w.spec()
				extra := filepath.Join(w.dir, "config.toml")
				spec.ReadOnly = append(spec.ReadOnly, extra)
				spec.Env = []string{"EXTRA=" + extra}
				spec.Argv, spec.Limits = []string{"/bin/sh", "-ec", script}, Limits{}
				output, o := run(t, s, spec)
				if o != (Outcome{}) {
					t.Errorf("it ended with %+v:\n%s", o, output)
				}
				if err := w.untouched(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

func TestCommandRefuses(t *testing.T) {
	s, w := find(t, None), newWorld(t)
	for name, spec := range map[string]Spec{
		"no command":    {},
		"zero":          {Argv: []string{"a\x00b"}},
		"relative":      {Argv: []string{"true"}, ReadWrite: []string{"a"}},
		"missing":       {Argv: []string{"true"}, ReadOnly: []string{w.in("nothing")}},
		"nested":        {Argv: []string{"true"}, ReadOnly: []string{w.ws}, ReadWrite: []string{w.dir}},
		"same":          {Argv: []string{"true"}, ReadOnly: []string{w.ws}, ReadWrite: []string{w.ws}},
		"zero in a var": {Argv: []string{"true"}, Env: []string{"A=\x00"}},
	} {
		if _, err := s.Command(t.Context(), spec); err == nil {
			t.Errorf("%s: Command(%+v) succeeded", name, spec)
		}
	}
}

func TestOutcome(t *testing.T) {
	sandboxes(t, func(t *testing.T, s *Sandbox) {
		for script, want := range map[string]Outcome{
			`exit 0`:             {},
			`exit 7`:             {Exit: 7},
			`kill -TERM $$`:      {Exit: 143},
			`exec sleep 60 &`:    {},
			`exec nonexistent-x`: {Exit: 127},
		} {
			w := newWorld(t)
			spec := w.spec()
			spec.Argv = []string{"/bin/sh", "-c", script}
			_, o := run(t, s, spec)
			o.Signal = 0 // bwrap turns it into an exit code
			if o != want {
				t.Errorf("%q ended with %+v, want %+v", script, o, want)
			}
		}
	})
	w := newWorld(t)
	spec := w.spec()
	spec.Argv = []string{"nonexistent-x"}
	if _, o := run(t, find(t, Landlock), spec); !strings.Contains(o.Err, "nonexistent-x") {
		t.Errorf("a program that is not there ended with %+v", o)
	}
}

// After a command, none of its files is open, even if the garbage collector does not run.
func TestNothingStaysOpen(t *testing.T) {
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	s, spec := find(t, Landlock), newWorld(t).spec()
	spec.Argv = []string{"/bin/true"}
	run(t, s, spec) // the first command opens files that stay open
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := open()
	for range 5 {
		run(t, s, spec)
	}
	if after := open(); after != before {
		t.Errorf("%d files are open after 5 commands, and %d before them", after, before)
	}
}

// TestPipes checks that a command can use pipes for its input and output, as a server needs it.
func TestPipes(t *testing.T) {
	sandboxes(t, func(t *testing.T, s *Sandbox) {
		spec := newWorld(t).spec()
		spec.Argv = []string{"cat"}
		c, err := s.Command(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			line := fmt.Sprintln("message", i)
			if _, err := io.WriteString(in, line); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(line))
			if _, err := io.ReadFull(out, got); err != nil || string(got) != line {
				t.Errorf("got %q, %v; want %q", got, err, line)
			}
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
			t.Errorf("after the end came %q, %v", rest, err)
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		if o, err := c.Outcome(); err != nil || o != (Outcome{}) {
			t.Errorf("Outcome = %+v, %v", o, err)
		}
	})
}

// TestFilter runs the filters in a virtual machine of x/net, for cases that a real kernel can't
// test.
func TestFilter(t *testing.T) {
	const eperm, eacces = 0x50000 | uint32(unix.EPERM), 0x50000 | uint32(unix.EACCES)
	const enosys, pass = 0x50000 | uint32(unix.ENOSYS), uint32(unix.SECCOMP_RET_ALLOW)
	closed, network := filter{}, filter{network: true}
	old := filter{notify: true, protect: []int{4711}}
	tests := []struct {
		name string
		f    filter
		call uint32
		args []uint32
		want uint32
	}{
		{"read", closed, unix.SYS_READ, nil, pass},
		{"ptrace", network, unix.SYS_PTRACE, nil, eperm},
		{"io_uring", network, unix.SYS_IO_URING_SETUP, nil, enosys},
		{"a call of tomorrow", network, lastCall + 1, nil, enosys},
		{"x32", network, 0x40000000 | unix.SYS_READ, nil, enosys},
		{"TCP", closed, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM}, eacces},
		{"TCP allowed", network, unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM}, pass},
		{"IPv6 allowed", network, unix.SYS_SOCKET, []uint32{unix.AF_INET6, 1}, pass},
		{"UNIX never", network, unix.SYS_SOCKET, []uint32{unix.AF_UNIX, 1}, eacces},
		{"routes", network, unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, 3, 0}, pass},
		{"other netlink", network, unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, 3, 9}, eacces},
		{"packets", network, unix.SYS_SOCKET, []uint32{unix.AF_PACKET, 3}, eacces},
		{"vsock", network, unix.SYS_SOCKET, []uint32{unix.AF_VSOCK, 1}, eacces},
		{"connect", network, unix.SYS_CONNECT, nil, pass},
		{"no connect", closed, unix.SYS_CONNECT, nil, eacces},
		{"pair", closed, unix.SYS_SOCKETPAIR,
			[]uint32{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, pass},
		{"pair of packets", closed, unix.SYS_SOCKETPAIR,
			[]uint32{unix.AF_UNIX, unix.SOCK_SEQPACKET}, pass},
		{"pair of datagrams", closed, unix.SYS_SOCKETPAIR,
			[]uint32{unix.AF_UNIX, unix.SOCK_DGRAM}, eacces},
		{"other pair", closed, unix.SYS_SOCKETPAIR, []uint32{unix.AF_TIPC, 1}, eacces},
		{"fork", closed, unix.SYS_CLONE, []uint32{uint32(unix.SIGCHLD)}, pass},
		{"namespace", closed, unix.SYS_CLONE, []uint32{unix.CLONE_NEWUSER}, eperm},
		{"namespace, too", old, unix.SYS_CLONE, []uint32{unix.CLONE_NEWNET | 17}, eperm},
		{"clone3", old, unix.SYS_CLONE3, nil, enosys},
		{"TIOCSTI", closed, unix.SYS_IOCTL, []uint32{0, unix.TIOCSTI}, eperm},
		{"window size", closed, unix.SYS_IOCTL, []uint32{0, unix.TIOCGWINSZ}, pass},
		{"prlimit", closed, unix.SYS_PRLIMIT64, []uint32{0}, pass},
		{"prlimit of another", closed, unix.SYS_PRLIMIT64, []uint32{1}, eperm},
		{"create", closed, unix.SYS_OPENAT, []uint32{0, 0, unix.O_CREAT, 0o644}, pass},
		{"create with an ID", closed, unix.SYS_OPENAT, []uint32{0, 0, unix.O_CREAT, 0o4755}, eperm},
		{"open", closed, unix.SYS_OPENAT, []uint32{0, 0, 0, 0o4755}, pass},
		{"mode", closed, unix.SYS_FCHMODAT, []uint32{0, 0, 0o755}, pass},
		{"mode with an ID", closed, unix.SYS_FCHMODAT, []uint32{0, 0, 0o2755}, eperm},
		{"mode, asked", old, unix.SYS_FCHMODAT, []uint32{0, 0, 0o755}, unix.SECCOMP_RET_USER_NOTIF},
		{"kill", old, unix.SYS_KILL, []uint32{100}, pass},
		{"kill the gateway", old, unix.SYS_KILL, []uint32{4711}, eperm},
		{"kill its group", old, unix.SYS_KILL, []uint32{^uint32(4710)}, eperm},
		{"kill all", old, unix.SYS_KILL, []uint32{^uint32(0)}, eperm},
	}
	for _, tt := range tests {
		raw, err := assemble(tt.f.rules())
		if err != nil {
			t.Fatal(err)
		}
		if got := simulate(t, raw, auditArch, tt.call, tt.args); got != tt.want {
			t.Errorf("%s: got %#x, want %#x", tt.name, got, tt.want)
		}
		kill := uint32(unix.SECCOMP_RET_KILL_PROCESS)
		if got := simulate(t, raw, 0x40000003, tt.call, tt.args); got != kill {
			t.Errorf("%s, as a call of another machine: got %#x, want %#x", tt.name, got, kill)
		}
	}
}

// simulate returns the result of a filter. The virtual machine reads numbers in network byte
// order.
func simulate(t *testing.T, raw []bpf.RawInstruction, arch, call uint32, args []uint32) uint32 {
	t.Helper()
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter can't be taken apart")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, offsetArgs+6*8)
	put := func(at int, v uint32) {
		for i := range 4 {
			data[at+i] = byte(v >> (24 - 8*i))
		}
	}
	put(offsetCall, call)
	put(offsetArch, arch)
	for i, v := range args {
		put(offsetArgs+8*i, v)
	}
	n, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func TestWithEnv(t *testing.T) {
	got := withEnv([]string{"A=1", "B=2", "AB=3"}, "A=4", "C=", "A=5")
	if want := []string{"B=2", "AB=3", "C=", "A=5"}; !slices.Equal(got, want) {
		t.Errorf("withEnv = %q, want %q", got, want)
	}
}
