//go:build unix

package cli

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// inBackground reports whether this process runs in the background of its terminal, as with
// "gateway &". The kernel stops a background process that changes the terminal's settings.
func inBackground(terminal *os.File) bool {
	foreground, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground != unix.Getpgrp()
}

// lowerPriority lowers the CPU priority of this process. Linux has a priority for each thread, and
// setpriority changes only one. The priority can't be raised again without privileges, so a process
// that goes on with other work must not call it.
func lowerPriority() error {
	const niceness = 10 // of at most 19
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil { // a system where the priority belongs to the process
		return syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness)
	}
	for _, t := range threads { // new threads inherit the priority
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			err = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
