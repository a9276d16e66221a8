//go:build unix

package osfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// WithKinds returns a second file for the directory f, whose listing has only the names and kinds
// of entries. A listing of an [os.Root] calls lstat for each entry, which takes most of the time of
// a walk. The caller closes both files.
func WithKinds(f *os.File) (*os.File, error) {
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
