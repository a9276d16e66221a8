package storetest

import "golang.org/x/sys/unix"

// leastFree is how much memory must be free for the files of tests.
const leastFree = 2 << 30

// roomy reports whether tests can write to a file system in memory and run programs there.
func roomy(dir string) bool {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	return err == nil && fs.Type == unix.TMPFS_MAGIC && fs.Flags&unix.ST_NOEXEC == 0 &&
		fs.Bavail*uint64(fs.Bsize) >= leastFree && unix.Access(dir, unix.W_OK) == nil
}
