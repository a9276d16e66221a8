package version

import (
	"errors"
	"os"
	"os/exec"

	"golang.org/x/sys/windows"
)

// tryLock takes the lock of a file.
func tryLock(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

// holdWhile does nothing: files are not inherited here.
func holdWhile(*exec.Cmd, *os.File) {}
