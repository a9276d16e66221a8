//go:build unix

package osfile

import (
	"io/fs"
	"os"
	"syscall"
)

// KeepOwner gives f, which replaces a file, the owner and group of that file, if the gateway is
// allowed to.
func KeepOwner(f *os.File, old fs.FileInfo) {
	st, ok := old.Sys().(*syscall.Stat_t)
	if ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
		_ = f.Chown(int(st.Uid), int(st.Gid)) // only root may do that, and only for root it matters
	}
}
