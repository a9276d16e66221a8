//go:build unix

package app

import (
	"fmt"
	"os"
	"syscall"
)

// canRestart says whether this process can become another one.
const canRestart = true

// StartAgain makes this process one of the program as it is now, with the same number, arguments
// and environment. It returns only if that fails.
func StartAgain() error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	err = syscall.Exec(path, os.Args, os.Environ())
	return fmt.Errorf("start %s again: %w", path, err)
}
