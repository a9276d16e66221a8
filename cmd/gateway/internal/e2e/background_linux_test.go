package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens a new pseudo-terminal. It returns the person's end and the programs' end.
func openTerminal(t *testing.T) (person, programs *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	programs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { programs.Close() })
	return person, programs
}

// TestBackground checks that a gateway in the background of a terminal runs as a service. If it
// began a chat, the kernel would stop it.
func TestBackground(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	person, programs := openTerminal(t)
	go func() { _, _ = io.Copy(io.Discard, person) }() // discards what the terminal shows
	// With job control, a shell runs each background command in its own process group.
	shell := exec.Command("sh", "-c", `set -m; "$0" & wait`, path)
	shell.Env, shell.Stdin, shell.Stdout, shell.Stderr = w.environ(), programs, programs, programs
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, child := range children(t, shell.Process.Pid) {
			_ = syscall.Kill(child, syscall.SIGKILL) // the process may have ended
		}
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	w.telegram.Say(1, 1, "are you there?")
	w.await("an answer", func() bool { return w.telegram.SentCount(1) == 1 })
}

// children returns the processes that a process has started.
func children(t *testing.T, pid int) (list []int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Logf("the children of process %d are not known: %v", pid, err)
	}
	for _, word := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(word); err == nil {
			list = append(list, child)
		}
	}
	return list
}
