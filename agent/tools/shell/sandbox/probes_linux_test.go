//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// escapeArgument makes the test binary a program that tries to break out.
const escapeArgument = "__escape"

// The first word of a probe's output.
const (
	escaped = "ESCAPED"
	held    = "HELD"
)

// probes are the ways to break out. A probe returns an error if it did not get out.
var probes = map[string]func(args []string) error{
	"read":      func(a []string) error { return readSecret(a[0], a[1]) },
	"write":     func(a []string) error { return os.WriteFile(a[0], []byte("x"), 0o600) },
	"append":    func(a []string) error { return appendTo(a[0]) },
	"openwrite": func(a []string) error { return openForWriting(a[0]) },
	"truncate":  func(a []string) error { return os.Truncate(a[0], 1) },
	"remove":    func(a []string) error { return os.Remove(a[0]) },
	"rename":    func(a []string) error { return os.Rename(a[0], a[1]) },
	"chmod":     func(a []string) error { return os.Chmod(a[0], 0o707) },
	"fchmod":    func(a []string) error { return chmodOpen(a[0]) },
	"chown":     func(a []string) error { return os.Chown(a[0], 12345, 12345) },
	"utimes":    func(a []string) error { return os.Chtimes(a[0], time.Unix(1, 0), time.Unix(1, 0)) },
	"setxattr":  func(a []string) error { return unix.Setxattr(a[0], "user.test", []byte("x"), 0) },
	"setuid":    setID4755,
	"mkdir":     func(a []string) error { return os.Mkdir(a[0], 0o700) },
	"mknod":     func(a []string) error { return unix.Mknod(a[0], unix.S_IFCHR|0o600, 0x0103) },
	"hardlink":  hardLink,
	"symlink":   symLink,
	"environ":   environ,
	"ownenv":    func(a []string) error { return contains(strings.Join(os.Environ(), "\n"), a[0]) },
	"files":     openFiles,
	"tcp":       func(a []string) error { return dial("tcp", a[0]) },
	"udp":       func(a []string) error { return dial("udp", a[0]) },
	"unix":      func(a []string) error { return dial("unix", a[0]) },
	"unixgram":  func(a []string) error { return dial("unixgram", a[0]) },
	"pairgram":  pairToPath,
	"signal":    func(a []string) error { return unix.Kill(number(a[0]), 0) },
	"terminate": func(a []string) error { return unix.Kill(number(a[0]), unix.SIGTERM) },
	"pidfd":     signalByFile,
	"owner":     signalByOwner,
	"prlimit":   limitOther,
	"ptrace":    func(a []string) error { return unix.PtraceSeize(number(a[0])) },
	"vmread":    readOther,
	"mount":     mountOver,
	"unshare":   func(a []string) error { return unix.Unshare(number(a[0])) },
	"clone":     cloneInto,
	"setns":     enterNamespace,
	"tiocsti":   typeAhead,
	"race":      race,
	"racechmod": raceChmod,
	"daemon":    daemon,
	"beat":      beat,
	"spawn":     spawn,
	"shared":    fillShared,
	"many":      manyFiles,
	"unlinked":  unlinkedFile,
	"nest":      nest,
	"calls":     call,
}

// escape runs a probe and prints the result.
func escape(name string, args []string) int {
	probe, ok := probes[name]
	if !ok {
		fmt.Println("there is no probe", name)
		return 2
	}
	if err := probe(args); err != nil {
		fmt.Println(held, err)
		return 0
	}
	fmt.Println(escaped)
	return 0
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func contains(text, secret string) error {
	if strings.Contains(text, secret) {
		return nil
	}
	return errors.New("not there")
}

func readSecret(path, secret string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return contains(string(text), secret)
}

func appendTo(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

func openForWriting(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func chmodOpen(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o707), f.Close())
}

// setID4755 creates a file with the set-user-ID bit in the folder, in one of several ways.
func setID4755(args []string) error {
	path := filepath.Join(args[0], "setuid-"+args[1])
	switch args[1] {
	case "chmod":
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			return err
		}
		return unix.Chmod(path, 0o4755)
	case "open":
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o4755)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	return unix.Mknod(path, unix.S_IFREG|0o4755, 0)
}

// hardLink creates a hard link in the folder to a file outside, and reads it there.
func hardLink(args []string) error {
	inside := filepath.Join(args[1], "hard")
	if err := os.Link(args[0], inside); err != nil {
		return err
	}
	return readSecret(inside, args[2])
}

func symLink(args []string) error {
	inside := filepath.Join(args[1], "soft")
	if err := os.Symlink(args[0], inside); err != nil {
		return err
	}
	return readSecret(inside, args[2])
}

// environ searches for a secret in the environments of all processes.
func environ(args []string) error {
	pids := args[1:]
	entries, _ := os.ReadDir("/proc") // the given processes are tried in any case
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	for _, pid := range pids {
		if readSecret("/proc/"+pid+"/environ", args[0]) == nil {
			return nil
		}
	}
	return errors.New("not found")
}

// openFiles searches for a secret in files that are already open.
func openFiles(args []string) error {
	for fd := 3; fd < 1000; fd++ {
		b := make([]byte, 1000)
		n, err := unix.Pread(fd, b, 0)
		if err == nil && strings.Contains(string(b[:n]), args[0]) {
			return nil
		}
	}
	return errors.New("not found")
}

func dial(network, address string) error {
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	_, err = c.Write([]byte("x"))
	return errors.Join(err, c.Close())
}

// pairToPath sends to a path through a socket of a pair. Creating a pair needs no call of socket,
// which the filter refuses for UNIX sockets.
func pairToPath(args []string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: args[0]})
}

func signalByFile(args []string) error {
	fd, err := unix.PidfdOpen(number(args[0]), 0)
	if err != nil {
		return err
	}
	return unix.PidfdSendSignal(fd, 0, nil, 0)
}

// signalByOwner makes the kernel send SIGTERM to the owner of a pipe when the pipe can be read.
func signalByOwner(args []string) error {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		return err
	}
	for _, step := range []struct{ cmd, arg int }{
		{unix.F_SETOWN, number(args[0])}, {unix.F_SETSIG, int(unix.SIGTERM)},
		{unix.F_SETFL, unix.O_ASYNC},
	} {
		if _, err := unix.FcntlInt(uintptr(pipe[0]), step.cmd, step.arg); err != nil {
			return err
		}
	}
	_, err := unix.Write(pipe[1], []byte("x"))
	return err
}

func limitOther(args []string) error {
	var old unix.Rlimit
	if err := unix.Prlimit(number(args[0]), unix.RLIMIT_CORE, nil, &old); err != nil {
		return err
	}
	return unix.Prlimit(number(args[0]), unix.RLIMIT_CORE, &old, nil)
}

func readOther(args []string) error {
	local := []unix.Iovec{{Base: new(byte), Len: 1}}
	// The address at which a program begins that is not position-independent.
	remote := []unix.RemoteIovec{{Base: 0x400000, Len: 1}}
	_, err := unix.ProcessVMReadv(number(args[0]), local, remote, 0)
	if errors.Is(err, unix.EFAULT) {
		return nil // the access was allowed
	}
	return err
}

func mountOver(args []string) error {
	return unix.Mount("none", args[0], "tmpfs", 0, "")
}

func cloneInto(args []string) error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: uintptr(number(args[0]))}
	return cmd.Run()
}

func enterNamespace(args []string) error {
	fd, err := unix.Open("/proc/"+args[0]+"/ns/uts", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWUTS)
}

func typeAhead([]string) error {
	c := byte('x')
	_, _, e := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	if e != 0 {
		return e
	}
	return nil
}

// call makes system calls, given by number, with invalid arguments. A call got out if the kernel
// got as far as checking the arguments.
func call(args []string) error {
	var out []string
	for _, number := range args {
		nr, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			panic(err)
		}
		none := ^uintptr(0)
		_, _, e := unix.Syscall6(uintptr(nr), none, none, none, none, none, none)
		if e != unix.EPERM && e != unix.ENOSYS {
			out = append(out, fmt.Sprintf("%d: %v", nr, e))
		}
	}
	if len(out) == 0 {
		return errors.New("all are refused")
	}
	fmt.Println(escaped, strings.Join(out, ", "))
	return nil
}

// race reads through a link that is swapped between a file inside and a file outside.
func race(args []string) error {
	return whileSwapping(args[0], args[1], func(link string) error {
		return readSecret(link, args[2])
	})
}

// raceChmod changes the mode of the link's target.
func raceChmod(args []string) error {
	return whileSwapping(args[0], args[1], func(link string) error {
		if err := os.Chmod(link, 0o707); err != nil {
			return err
		}
		info, err := os.Stat(args[0])
		if err == nil && info.Mode().Perm() != 0o707 {
			err = errors.New("it was another file")
		}
		return err
	})
}

func whileSwapping(outside, dir string, try func(link string) error) error {
	link, good := filepath.Join(dir, "link"), filepath.Join(dir, "good")
	if err := os.WriteFile(good, []byte("good"), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ctx.Err() == nil; i++ {
			next := filepath.Join(dir, "next")
			_ = os.Remove(next) // it may not exist
			_ = os.Symlink([]string{good, outside}[i%2], next)
			_ = os.Rename(next, link)
		}
	}()
	defer func() { cancel(); <-stopped }()
	for {
		if _, err := os.Lstat(link); err == nil {
			break
		}
	}
	for range 2000 {
		if try(link) == nil {
			return nil
		}
	}
	return errors.New("never got it")
}

// daemon starts a process that outlives this one, in one of several ways.
func daemon(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	beat := []string{self, escapeArgument, "beat", args[1]}
	var cmd *exec.Cmd
	switch args[0] {
	case "nohup":
		cmd = exec.Command("/bin/sh", append([]string{"-c", `nohup "$@" >/dev/null 2>&1 &`, "sh"},
			beat...)...)
	case "setsid":
		cmd = exec.Command(beat[0], beat[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return errors.Join(cmd.Start(), waitFor(args[1]))
	case "double":
		cmd = exec.Command(self, escapeArgument, "daemon", "setsid", args[1])
	}
	return errors.Join(cmd.Run(), waitFor(args[1]))
}

// waitFor waits until the file has content.
func waitFor(path string) error {
	for range 10_000 {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("it did not start")
}

// beat appends to a file for about a minute.
func beat(args []string) error {
	for range 6000 {
		f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if _, err = f.WriteString("x"); errors.Join(err, f.Close()) != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// holdVar is the number of seconds for which a greedyCommand keeps its resources, so that they are
// noticed.
const holdVar = "HOLD"

func hold() { time.Sleep(time.Duration(number(os.Getenv(holdVar))) * time.Second) }

// spawn starts a number of processes that run at the same time.
func spawn(args []string) error {
	var cmds []*exec.Cmd
	defer func() {
		for _, c := range cmds {
			_ = c.Process.Kill() // only the end matters
			_ = c.Wait()
		}
	}()
	for range number(args[0]) {
		c := exec.Command("sleep", "60")
		if err := c.Start(); err != nil {
			return err
		}
		cmds = append(cmds, c)
	}
	hold()
	return nil
}

// fillShared uses shared memory, which belongs to no single process.
func fillShared(args []string) error {
	b, err := unix.Mmap(-1, 0, number(args[0]), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	hold()
	return unix.Munmap(b)
}

func manyFiles(args []string) error {
	content := bytes.Repeat([]byte("x"), number(args[2]))
	for i := range number(args[1]) {
		name := filepath.Join(args[0], fmt.Sprint("file", i))
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	hold()
	return nil
}

// unlinkedFile writes to files whose names it has removed.
func unlinkedFile(args []string) error {
	content := bytes.Repeat([]byte("x"), 1<<20)
	for i := range number(args[1]) {
		f, err := os.Create(filepath.Join(args[0], fmt.Sprint("gone", i)))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		if _, err := f.Write(content); err != nil {
			return err
		}
	}
	hold()
	return nil
}

// nest acts as a gateway: it runs a command that starts a daemon, and waits.
func nest(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, err := Find(context.Background(), Options{Mode: args[0]})
	if err != nil {
		return err
	}
	argv := []string{self, escapeArgument, "daemon", "double", filepath.Join(args[1], "beat")}
	argv = append([]string{"/bin/sh", "-c", `"$@"; exec sleep 60`, "sh"}, argv...)
	c, err := s.Command(context.Background(), Spec{
		Argv: argv, ReadOnly: []string{self}, ReadWrite: []string{args[1]},
		Limits: Limits{Memory: -1},
	})
	if err != nil {
		return err
	}
	return c.Run()
}
