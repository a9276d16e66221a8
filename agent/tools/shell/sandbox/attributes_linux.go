//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An attributeServer changes the mode and times of files on behalf of the processes of a job. The
// job's filter does not let them do it directly, because Landlock has no rule that restricts such
// changes to certain files.
type attributeServer struct {
	folders []string // their paths have no symbolic links
}

func newAttributeServer(j *job, tmp string) *attributeServer {
	m := &attributeServer{}
	for _, folder := range append([]string{tmp}, j.ReadWrite...) {
		if real, err := filepath.EvalSymlinks(folder); err == nil {
			m.folders = append(m.folders, real)
		}
	}
	return m
}

// A seccompRequest is a system call that waits for the supervisor: struct seccomp_notif of
// linux/seccomp.h.
type seccompRequest struct {
	id    uint64
	pid   uint32
	flags uint32
	call  int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// An answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// An argumentLayout describes the arguments of a system call. The fields are argument indexes, or
// -1 if the call has no such argument.
type argumentLayout struct {
	what                    byte // 'm' for mode, 'o' for owner, 't' for times
	dir, path, value, flags int
	noFollow                bool
	unit                    time.Duration // of the fraction in times; 0: times have whole seconds only
}

// forms describes the system calls of [changes].
var forms = map[int32]argumentLayout{
	unix.SYS_FCHMOD:    {what: 'm', dir: 0, path: -1, value: 1, flags: -1},
	unix.SYS_FCHMODAT:  {what: 'm', dir: 0, path: 1, value: 2, flags: -1},
	unix.SYS_FCHMODAT2: {what: 'm', dir: 0, path: 1, value: 2, flags: 3},
	unix.SYS_FCHOWN:    {what: 'o', dir: 0, path: -1, value: 1, flags: -1},
	unix.SYS_FCHOWNAT:  {what: 'o', dir: 0, path: 1, value: 2, flags: 4},
	unix.SYS_UTIMENSAT: {
		what: 't', dir: 0, path: 1, value: 2, flags: 3, unit: time.Nanosecond,
	},
}

// serve answers the system calls from listener until the supervisor ends.
func (m *attributeServer) serve(listener int) {
	for {
		var p seccompRequest
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener),
			unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&p)))
		switch e {
		case 0:
		case unix.EINTR, unix.ENOENT: // the calling process has ended
			continue
		default:
			return
		}
		a := answer{id: p.id}
		if err := m.do(listener, &p); err != 0 {
			a.err = -int32(err)
		}
		// An error means that the calling process has ended.
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener),
			unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// do makes the requested change if the job may write the file and owns it.
func (m *attributeServer) do(listener int, p *seccompRequest) unix.Errno {
	f, ok := forms[p.call]
	if !ok {
		f, ok = archForms[p.call]
	}
	if !ok {
		return unix.ENOSYS
	}
	target, e := p.open(f)
	if e != 0 {
		return e
	}
	defer unix.Close(target)
	times, e := p.times(f)
	if e != 0 {
		return e
	}
	// Make sure that the data was read from the process that made the call, and not from a later
	// process with the same ID.
	_, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_ID_VALID,
		uintptr(unsafe.Pointer(&p.id)))
	if e != 0 {
		return unix.ESRCH
	}
	name := "/proc/self/fd/" + strconv.Itoa(target)
	var stat unix.Stat_t
	if err := unix.Fstat(target, &stat); err != nil {
		return errno(err)
	}
	if path, err := os.Readlink(name); err != nil || !m.owns(path) ||
		int(stat.Uid) != os.Geteuid() {
		return unix.EPERM
	}
	switch f.what {
	case 'm':
		return changeMode(name, stat.Mode, uint32(p.args[f.value]))
	case 'o':
		return changeOwner(&stat, uint32(p.args[f.value]), uint32(p.args[f.value+1]))
	}
	return errno(unix.UtimesNanoAt(unix.AT_FDCWD, name, times, 0))
}

func (m *attributeServer) owns(path string) bool {
	return slices.ContainsFunc(m.folders, func(f string) bool { return within(path, f) })
}

func changeMode(name string, old, mode uint32) unix.Errno {
	switch {
	case old&unix.S_IFMT == unix.S_IFLNK:
		return unix.EOPNOTSUPP
	case mode&setID != 0:
		return unix.EPERM
	}
	return errno(unix.Chmod(name, mode&0o7777))
}

// changeOwner changes nothing. It succeeds if the owner stays the same, as an unprivileged process
// can't give files away.
func changeOwner(stat *unix.Stat_t, user, group uint32) unix.Errno {
	const keep = ^uint32(0)
	if user != keep && user != stat.Uid || group != keep && group != stat.Gid {
		return unix.EPERM
	}
	return 0
}

// open opens the file of the call with O_PATH.
func (p *seccompRequest) open(f argumentLayout) (fd int, e unix.Errno) {
	proc := "/proc/" + strconv.Itoa(int(p.pid)) + "/"
	base := proc + "cwd"
	if f.dir >= 0 && int32(p.args[f.dir]) != unix.AT_FDCWD {
		base = proc + "fd/" + strconv.Itoa(int(int32(p.args[f.dir])))
	}
	flags := uint64(0)
	if f.flags >= 0 {
		flags = p.args[f.flags]
	}
	if f.path < 0 || p.args[f.path] == 0 && f.what == 't' {
		return open(unix.AT_FDCWD, base, 0)
	}
	path, e := p.text(p.args[f.path])
	if e != 0 {
		return -1, e
	}
	if path == "" {
		if flags&unix.AT_EMPTY_PATH == 0 {
			return -1, unix.ENOENT
		}
		return open(unix.AT_FDCWD, base, 0)
	}
	how := 0
	if f.noFollow || flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		how = unix.O_NOFOLLOW
	}
	if filepath.IsAbs(path) {
		// The C library changes modes through this path. In the supervisor it would name the
		// supervisor.
		if rest, ok := strings.CutPrefix(path, "/proc/self/"); ok {
			path = proc + rest
		}
		return open(unix.AT_FDCWD, path, how)
	}
	dir, e := open(unix.AT_FDCWD, base, unix.O_DIRECTORY)
	if e != 0 {
		return -1, e
	}
	defer unix.Close(dir)
	return open(dir, path, how)
}

func open(dir int, path string, how int) (fd int, e unix.Errno) {
	fd, err := unix.Openat(dir, path, unix.O_PATH|unix.O_CLOEXEC|how, 0)
	return fd, errno(err)
}

// text reads the path at an address in the calling process.
func (p *seccompRequest) text(at uint64) (string, unix.Errno) {
	b := make([]byte, unix.PathMax)
	n, e := p.read(b, at)
	if e != 0 {
		return "", e
	}
	text, _, ok := bytes.Cut(b[:n], []byte{0})
	if !ok {
		return "", unix.ENAMETOOLONG
	}
	return string(text), 0
}

// times returns the two times of the call, or nil if the call does not set times.
func (p *seccompRequest) times(f argumentLayout) ([]unix.Timespec, unix.Errno) {
	if f.what != 't' {
		return nil, 0
	}
	if p.args[f.value] == 0 {
		return []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}, 0
	}
	var b [32]byte
	size := len(b)
	if f.unit == 0 {
		size /= 2
	}
	if n, e := p.read(b[:size], p.args[f.value]); e != 0 || n < size {
		return nil, unix.EFAULT
	}
	word := func(i int) int64 { return int64(binary.NativeEndian.Uint64(b[8*i:])) }
	if f.unit == 0 {
		return []unix.Timespec{{Sec: word(0)}, {Sec: word(1)}}, 0
	}
	unit := int64(f.unit)
	return []unix.Timespec{
		{Sec: word(0), Nsec: word(1) * unit}, {Sec: word(2), Nsec: word(3) * unit},
	}, 0
}

// read reads memory of the calling process. It may read less than len(b).
func (p *seccompRequest) read(b []byte, at uint64) (n int, e unix.Errno) {
	mem, err := unix.Open("/proc/"+strconv.Itoa(int(p.pid))+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, unix.EFAULT
	}
	defer unix.Close(mem)
	n, err = unix.Pread(mem, b, int64(at))
	if err != nil || n <= 0 {
		return 0, unix.EFAULT
	}
	return n, 0
}

// errno returns the error number of err.
func errno(err error) unix.Errno {
	var e unix.Errno
	if err != nil && !errors.As(err, &e) {
		return unix.EIO
	}
	return e
}
