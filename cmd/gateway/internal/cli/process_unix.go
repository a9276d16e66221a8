//go:build unix

package cli

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// inBackground reports whether the shell has started this process in the background of its
// terminal, as with "gateway &". The kernel stops one there that changes how the terminal works.
func inBackground(terminal *os.File) bool {
	foreground, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground != unix.Getpgrp()
}

// stepBack lets other processes have the processor first.
func stepBack() error {
	const niceness = 10
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil { // a system on which it is a matter of the whole process
		return syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness)
	}
	for _, t := range threads { // threads that come later have it from these
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
