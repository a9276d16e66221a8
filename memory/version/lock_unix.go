//go:build unix

package version

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// tryLock takes the lock of a file.
func tryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// holdWhile makes the lock last as long as the command, should we end before.
func holdWhile(cmd *exec.Cmd, lock *os.File) { cmd.ExtraFiles = []*os.File{lock} }
