//go:build unix

package doctor

import (
	"io/fs"
	"os"
	"syscall"
)

// OwnerOf returns the user id and the group id of a file.
func OwnerOf(info fs.FileInfo) (uid, gid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(s.Uid), int(s.Gid), true
}

// inodeOf returns the inode number of a file.
func inodeOf(file string) (inode uint64, ok bool) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(s.Ino), true
}
