package ops

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// DiskSpace returns the number of bytes that this user can still write on the disk of path, and
// the size of the disk.
func DiskSpace(path string) (free, total uint64, err error) {
	name, err := windows.UTF16PtrFromString(path)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, &total, nil)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("ops: disk of %s: %w", path, err)
	}
	return free, total, nil
}
