package doctor

import "io/fs"

// OwnerOf returns false: Windows has no numeric user ids.
func OwnerOf(fs.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

// inodeOf returns false: Windows has no inode numbers.
func inodeOf(string) (inode uint64, ok bool) { return 0, false }
