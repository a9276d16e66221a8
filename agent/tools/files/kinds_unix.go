//go:build unix

package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// withKinds returns f, a directory, as a file that lists entries with their kinds only. That of an
// [os.Root] asks the system about each entry, which takes most of the time of a walk. The caller
// closes both.
func withKinds(f *os.File) (*os.File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	other, failed := -1, error(nil)
	err = conn.Control(func(fd uintptr) {
		other, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(other), f.Name()), nil
}
