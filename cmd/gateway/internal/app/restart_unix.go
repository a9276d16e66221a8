//go:build unix

package app

import (
	"fmt"
	"os"
	"syscall"
)

// canRestart reports whether a process can replace itself.
const canRestart = true

// Restart replaces this process with the present program file, with the same process id,
// arguments and environment. It returns only if that fails.
func Restart() error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	err = syscall.Exec(path, os.Args, os.Environ())
	return fmt.Errorf("start %s again: %w", path, err)
}
