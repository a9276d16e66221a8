//go:build unix

package cli

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

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
