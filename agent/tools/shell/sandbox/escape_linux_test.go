//go:build amd64 || arm64

package sandbox

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An attempt is one way to break out of the sandbox.
type attempt struct {
	name string

	// args returns the arguments of the probe. It also creates the files that the probe needs.
	args func(t *testing.T, w *world) []string

	// harmed reports harm outside the sandbox, for a probe that can't tell. Without harm, the probe
	// did not get out, even if it thinks so because it changed its own folder.
	harmed func(t *testing.T, w *world) bool

	root bool // without a sandbox, only root succeeds
	weak bool // old Landlock does not prevent it, and reports so
}

func fixed(args ...string) func(*testing.T, *world) []string {
	return func(*testing.T, *world) []string { return args }
}

func touched(t *testing.T, w *world) bool {
	err := w.untouched()
	if err != nil {
		t.Log(err)
	}
	return err != nil
}

// onConfig returns the arguments for a probe of the file beside the workspace.
func onConfig(probe string, more ...string) func(*testing.T, *world) []string {
	return func(_ *testing.T, w *world) []string {
		return append([]string{probe, w.config}, more...)
	}
}

// TestEscapeFiles checks that files outside the workspace can't be read or changed.
func TestEscapeFiles(t *testing.T) {
	attempts := []attempt{
		{name: "shadow", args: fixed("read", "/etc/shadow", ":"), root: true},
		{name: "home", args: func(_ *testing.T, w *world) []string {
			return []string{"read", w.home, w.secret}
		}},
		{name: "config", args: func(_ *testing.T, w *world) []string {
			return []string{"read", w.config, w.secret}
		}},
		{name: "config by dots", args: func(_ *testing.T, w *world) []string {
			return []string{"read", w.ws + "/../config.toml", w.secret}
		}},
		{name: "config by a link", args: func(_ *testing.T, w *world) []string {
			return []string{"symlink", w.config, w.ws, w.secret}
		}},
		{name: "config by a link that was there", args: func(t *testing.T, w *world) []string {
			if err := os.Symlink("../config.toml", w.in("there")); err != nil {
				t.Fatal(err)
			}
			return []string{"read", w.in("there"), w.secret}
		}},
		{name: "config by a link that is swapped", args: func(_ *testing.T, w *world) []string {
			return []string{"race", w.config, w.ws, w.secret}
		}},
		{name: "config by a hard link", args: func(_ *testing.T, w *world) []string {
			return []string{"hardlink", w.config, w.ws, w.secret}
		}},
		{name: "environment of others", args: func(t *testing.T, w *world) []string {
			return []string{"environ", w.secret, "1", strconv.Itoa(w.bystander(t).Process.Pid)}
		}},
		{name: "write to config", args: onConfig("append"), harmed: touched},
		{name: "truncate config", args: onConfig("truncate"), harmed: touched},
		{name: "remove config", args: onConfig("remove"), harmed: touched},
		{name: "move config", args: func(_ *testing.T, w *world) []string {
			return []string{"rename", w.config, w.in("mine")}
		}, harmed: touched},
		{name: "replace config", args: func(t *testing.T, w *world) []string {
			if err := os.WriteFile(w.in("mine"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return []string{"rename", w.in("mine"), w.config}
		}, harmed: touched},
		{name: "mode of config", args: onConfig("chmod"), harmed: touched},
		{name: "mode of config by a swapped link", args: func(_ *testing.T, w *world) []string {
			return []string{"racechmod", w.config, w.ws}
		}, harmed: touched},
		{name: "owner of config", args: onConfig("chown"), harmed: touched, root: true},
		{name: "times of config", args: onConfig("utimes"), harmed: touched},
		{name: "attribute of config", args: onConfig("setxattr"), harmed: touched},
		{name: "file beside", args: func(_ *testing.T, w *world) []string {
			return []string{"write", filepath.Join(w.dir, "new")}
		}, harmed: touched},
		{name: "folder beside", args: func(_ *testing.T, w *world) []string {
			return []string{"mkdir", filepath.Join(w.dir, "new")}
		}, harmed: touched},
		{name: "write to home", args: func(_ *testing.T, w *world) []string {
			return []string{"append", w.home}
		}, harmed: touched},
		newFile("usr", "/usr/local/bin", true), newFile("etc", "/etc", true),
		newFile("root", "/", true), newFile("var", "/var", true), newFile("tmp", "/tmp", false),
		{name: "sysctl", args: fixed("openwrite", "/proc/sys/kernel/core_pattern"), root: true},
		{name: "sysrq", args: fixed("openwrite", "/proc/sysrq-trigger"), root: true},
		{name: "memory device", args: func(_ *testing.T, w *world) []string {
			return []string{"mknod", w.in("device")}
		}, root: true},
		{name: "set-user-ID by chmod", args: setUserID("chmod")},
		{name: "set-user-ID by open", args: setUserID("open")},
		{name: "set-user-ID by mknod", args: setUserID("mknod")},
	}
	attempts = slices.DeleteFunc(attempts, func(a attempt) bool { // a machine may not have this file
		_, err := os.Stat("/proc/sysrq-trigger")
		return a.name == "sysrq" && err != nil
	})
	attemptAll(t, attempts)
}

func setUserID(how string) func(*testing.T, *world) []string {
	return func(_ *testing.T, w *world) []string { return []string{"setuid", w.ws, how} }
}

// newFile returns an attempt to create a file in a folder of the system.
func newFile(name, folder string, root bool) attempt {
	path := func(w *world) string { return filepath.Join(folder, "gateway-"+w.secret) }
	return attempt{name: "write to " + name, root: root,
		args: func(t *testing.T, w *world) []string {
			t.Cleanup(func() { _ = os.Remove(path(w)) }) // the file should not exist
			return []string{"write", path(w)}
		},
		harmed: func(_ *testing.T, w *world) bool {
			_, err := os.Stat(path(w))
			return err == nil
		},
	}
}

// TestEscapeSockets checks that servers outside can't be reached, also not in ways that need no
// network.
func TestEscapeSockets(t *testing.T) {
	listen := func(network, address string) func(*testing.T, *world) []string {
		return func(t *testing.T, w *world) []string {
			at := strings.ReplaceAll(address, "WS", w.ws)
			at = strings.ReplaceAll(at, "SECRET", w.secret)
			if network == "udp" || network == "unixgram" {
				c, err := net.ListenPacket(network, at)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return []string{network, c.LocalAddr().String()}
			}
			l, err := net.Listen(network, at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return []string{network, l.Addr().String()}
		}
	}
	attempts := []attempt{
		{name: "TCP", args: listen("tcp", "127.0.0.1:0")},
		{name: "UDP", args: listen("udp", "127.0.0.1:0")},
		{name: "UNIX", args: listen("unix", "WS/sock")},
		{name: "UNIX datagrams", args: listen("unixgram", "WS/sock")},
		{name: "UNIX abstract", args: listen("unix", "@SECRET")},
		{name: "UNIX datagrams from a pair", args: func(t *testing.T, w *world) []string {
			return append([]string{"pairgram"}, listen("unixgram", "WS/sock")(t, w)[1:]...)
		}},
	}
	attemptAll(t, attempts)
}

// TestEscapeProcesses checks that a command can't affect other processes, namespaces or the
// terminal.
func TestEscapeProcesses(t *testing.T) {
	onBystander := func(probe string) func(*testing.T, *world) []string {
		return func(t *testing.T, w *world) []string {
			return []string{probe, strconv.Itoa(w.bystander(t).Process.Pid)}
		}
	}
	onGateway := func(probe string) func(*testing.T, *world) []string {
		return fixed(probe, strconv.Itoa(os.Getpid()))
	}
	attempts := []attempt{
		{name: "signal the gateway", args: onGateway("signal")},
		{name: "signal the gateway's group", args: func(*testing.T, *world) []string {
			return []string{"signal", strconv.Itoa(-unix.Getpgrp())}
		}},
		{name: "signal the gateway by file", args: onGateway("pidfd")},
		{name: "limit the gateway", args: onGateway("prlimit")},
		{name: "end another", args: onBystander("terminate"), weak: true},
		{name: "signal by owner", args: onBystander("owner"), harmed: gone},
		{name: "trace another", args: onBystander("ptrace")},
		{name: "memory of another", args: onBystander("vmread")},
		{name: "namespace of another", args: onBystander("setns"), root: true},
		{name: "mount", args: func(t *testing.T, w *world) []string {
			t.Cleanup(func() { _ = unix.Unmount(w.ws, unix.MNT_DETACH) }) // it should not be mounted
			return []string{"mount", w.ws}
		}, root: true},
		{name: "namespace", args: fixed("unshare", strconv.Itoa(unix.CLONE_NEWNS)), root: true},
		{name: "namespace by clone", root: true,
			args: fixed("clone", strconv.Itoa(unix.CLONE_NEWUTS))},
	}
	attemptAll(t, attempts)
}

// TestEscapeCalls makes each system call that the filter refuses. Without a sandbox, it makes
// only calls that do nothing with such arguments. A kernel or a container may lack some of them.
func TestEscapeCalls(t *testing.T) {
	numbers := func(calls []uintptr) (args []string) {
		for _, c := range calls {
			args = append(args, strconv.Itoa(int(c)))
		}
		return args
	}
	all := slices.Concat(privileged, archPrivileged, absent)
	all = slices.DeleteFunc(all, func(c uintptr) bool { return c == unix.SYS_VHANGUP }) // no arguments
	sandboxes(t, func(t *testing.T, s *Sandbox) {
		w := newWorld(t)
		got, output := w.probe(t, s, append([]string{"calls"}, numbers(all)...)...)
		if got || !strings.Contains(output, "all are refused") {
			t.Errorf("it got out: %s", output)
		}
	})
	t.Run("control", func(t *testing.T) {
		harmless := []uintptr{unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF,
			unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KCMP, unix.SYS_IO_URING_SETUP,
			unix.SYS_MEMFD_CREATE, unix.SYS_OPENAT2, unix.SYS_CLONE3}
		w := newWorld(t)
		got, output := w.probe(t, find(t, None), append([]string{"calls"}, numbers(harmless)...)...)
		if !got {
			t.Errorf("without a sandbox none got out either: %s", output)
		}
		t.Logf("what the machine itself lets through: %s", output)
	})
}

// gone reports whether the bystander has ended.
func gone(t *testing.T, w *world) bool {
	t.Helper()
	// Sending a signal takes no time, but its effect does. Without a sandbox the process does end,
	// so the control waits longer.
	wait := 300 * time.Millisecond
	if strings.HasSuffix(t.Name(), "/control") {
		wait = time.Minute
	}
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		if !slices.ContainsFunc(descendants(os.Getpid()), func(pid int) bool {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			return err == nil && strings.Contains(string(text), w.secret)
		}) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// attemptAll makes every attempt in each sandbox, where it must fail. It also makes the attempt
// without a sandbox, where it must succeed: an attempt that always fails would prove nothing.
func attemptAll(t *testing.T, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			sandboxes(t, func(t *testing.T, s *Sandbox) {
				got, output := a.try(t, s)
				if weak := a.weak && s.mode == Landlock && s.abi < signalABI; got && !weak {
					t.Errorf("it got out: %s", output)
				}
			})
			if a.root && os.Geteuid() != 0 {
				return // without a sandbox, only root succeeds
			}
			t.Run("control", func(t *testing.T) {
				if got, output := a.try(t, find(t, None)); !got {
					t.Errorf("without a sandbox it did not get out either: %s", output)
				}
			})
		})
	}
}

func (a attempt) try(t *testing.T, s *Sandbox) (got bool, output string) {
	t.Helper()
	w := newWorld(t)
	got, output = w.probe(t, s, a.args(t, w)...)
	if a.harmed != nil {
		got = a.harmed(t, w)
	}
	return got, output
}

// TestEscapeInherited checks that a command does not inherit the gateway's open files and
// environment.
func TestEscapeInherited(t *testing.T) {
	w := newWorld(t)
	t.Setenv("GATEWAY_TEST_KEY", w.secret)
	f, err := os.Open(w.config)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 200) // a file without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, probe := range []string{"ownenv", "files"} {
		for _, mode := range []string{Bubblewrap, Landlock, None} {
			t.Run(probe+" "+mode, func(t *testing.T) {
				if got, output := w.probe(t, find(t, mode), probe, w.secret); got {
					t.Errorf("it got out: %s", output)
				}
			})
		}
		t.Run(probe+" control", func(t *testing.T) {
			out, err := exec.Command(w.self, escapeArgument, probe, w.secret).Output()
			if err != nil || !strings.HasPrefix(string(out), escaped) {
				t.Errorf("without a sandbox it did not get out either: %s %v", out, err)
			}
		})
	}
}

// TestEscapeTerminal checks that a command can't type into the gateway's terminal.
func TestEscapeTerminal(t *testing.T) {
	terminal := func(t *testing.T) *os.File {
		t.Helper()
		master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { master.Close() })
		n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tty.Close() })
		return tty
	}
	attempt := func(t *testing.T, s *Sandbox) string {
		t.Helper()
		w := newWorld(t)
		c, err := s.Command(t.Context(), w.spec("tiocsti"))
		if err != nil {
			t.Fatal(err)
		}
		c.Stdin = terminal(t)
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	sandboxes(t, func(t *testing.T, s *Sandbox) {
		if output := attempt(t, s); !strings.HasPrefix(output, held) {
			t.Errorf("it got out: %s", output)
		}
	})
	if os.Geteuid() != 0 {
		return // without a sandbox, only root succeeds
	}
	t.Run("control", func(t *testing.T) {
		if output := attempt(t, find(t, None)); !strings.HasPrefix(output, escaped) {
			t.Errorf("without a sandbox it did not get out either: %s", output)
		}
	})
}
