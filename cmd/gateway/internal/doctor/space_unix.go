//go:build unix

package doctor

import "golang.org/x/sys/unix"

func diskSpace(dir string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Space{}, err
	}
	// Some file systems make as many files as there is room for, and count none.
	return Space{Free: uint64(s.Bavail) * uint64(s.Bsize), Files: uint64(s.Ffree),
		Counts: s.Files > 0}, nil
}
