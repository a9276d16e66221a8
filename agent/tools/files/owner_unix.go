//go:build unix

package files

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f, which takes the place of a file, the same owner, as far as the gateway may.
func keepOwner(f *os.File, old fs.FileInfo) {
	st, ok := old.Sys().(*syscall.Stat_t)
	if ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
		_ = f.Chown(int(st.Uid), int(st.Gid)) // only root may, and then it matters
	}
}
