package ops

import "gateway/store"

// Space is the space on a disk.
type Space struct {
	Free   uint64 // bytes that this user can still write
	Total  uint64 // size of the disk in bytes
	Files  uint64 // number of files that can still be created
	Counts bool   // the file system limits the number of files
}

// DiskSpace returns the space on the disk of a folder.
func DiskSpace(dir string) (Space, error) {
	s, err := diskSpace(dir)
	return s, store.Wrap(err, "ops: disk of %s", dir)
}
