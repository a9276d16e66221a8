//go:build unix

package ops

import "golang.org/x/sys/unix"

func diskSpace(dir string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Space{}, err
	}
	// Some file systems have no limit for the number of files and report 0.
	return Space{Free: uint64(s.Bavail) * uint64(s.Bsize), Total: uint64(s.Blocks) * uint64(s.Bsize),
		Files: uint64(s.Ffree), Counts: s.Files > 0}, nil
}
