//go:build unix

package ops

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// DiskSpace returns the number of bytes that this user can still write on the disk of path, and
// the size of the disk.
func DiskSpace(path string) (free, total uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("ops: disk of %s: %w", path, err)
	}
	return uint64(s.Bavail) * uint64(s.Bsize), uint64(s.Blocks) * uint64(s.Bsize), nil
}
