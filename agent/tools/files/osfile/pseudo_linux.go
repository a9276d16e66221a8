package osfile

import (
	"os"
	"syscall"
)

// IsPseudo reports whether f is a file of /proc, /sys or a similar file system. Their files look
// regular by their mode, but they reveal data about the gateway's process, and reading some of them
// has side effects.
func IsPseudo(f *os.File) bool {
	var st syscall.Statfs_t
	conn, err := f.SyscallConn()
	if err != nil {
		return true
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = syscall.Fstatfs(int(fd), &st) })
	if err != nil || failed != nil {
		return true
	}
	switch uint32(st.Type) { // linux/magic.h
	case 0x9fa0, // proc
		0x62656572, // sysfs
		0x64626720, // debugfs
		0x74726163, // tracefs
		0x27e0eb,   // cgroup
		0x63677270, // cgroup2
		0x73636673: // securityfs
		return true
	}
	return false
}
