//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A filter defines which system calls a command may make. It refuses system calls that ordinary
// programs do not use, those that have often allowed an escape from a sandbox, and those that are
// newer than this list.
type filter struct {
	network bool

	// notify passes system calls that change attributes of files to the supervisor, because
	// Landlock has no rules for them.
	notify bool

	// protect lists processes that must not get signals. It is for kernels whose Landlock does not
	// restrict signals. If it is set, the filter also refuses ways to send signals whose target it
	// can't inspect.
	protect []int
}

// lastCall is the newest system call that this filter takes into account, rseq_slice_yield.
const lastCall = 471

// Offsets in struct seccomp_data of linux/seccomp.h, the filter's input.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

var (
	allow  = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	notify = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
)

// fail returns the instruction that makes the system call fail with e.
func fail(e unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(e)}
}

// argument loads the lower 32 bits of an argument. The arguments that are inspected have no more.
func argument(n int) bpf.Instruction {
	return bpf.LoadAbsolute{Off: uint32(offsetArgs + 8*n), Size: 4}
}

// allowOnly allows the system call if argument n is one of values. Otherwise the call fails with
// EPERM.
func allowOnly(n int, values ...uint32) []bpf.Instruction {
	return choose(n, fail(unix.EPERM), allow, values)
}

// denyValues makes the system call fail with EPERM if argument n is one of values, and allows it
// otherwise.
func denyValues(n int, values ...uint32) []bpf.Instruction {
	return choose(n, allow, fail(unix.EPERM), values)
}

func choose(n int, otherwise, found bpf.Instruction, values []uint32) []bpf.Instruction {
	p := []bpf.Instruction{argument(n)}
	for i, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(p, otherwise, found)
}

// denyBits makes the system call fail with EPERM if argument n has one of the bits.
func denyBits(n int, bits uint32) []bpf.Instruction {
	return []bpf.Instruction{
		argument(n), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipTrue: 1}, allow,
		fail(unix.EPERM),
	}
}

// denyBitsIfCreates is like without, for system calls that use the mode only if flags contains
// O_CREAT.
func denyBitsIfCreates(flags, n int, bits uint32) []bpf.Instruction {
	return append([]bpf.Instruction{
		argument(flags), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT, SkipTrue: 1}, allow,
	}, denyBits(n, bits)...)
}

// setID are the mode bits with which a program runs with the rights of its owner or group. If the
// gateway runs as root, other users could get root's rights with such a file.
const setID = unix.S_ISUID | unix.S_ISGID

// namespaces are the flags of clone that create namespaces.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Commands of fcntl that can cause signals, from fcntl.h.
const (
	setOwner   = 8
	setSignal  = 10
	setOwnerEx = 15
)

// rules returns the instructions for each restricted system call. Each list ends with a return.
func (f filter) rules() map[uintptr][]bpf.Instruction {
	rules := make(map[uintptr][]bpf.Instruction)
	refuse := func(e unix.Errno, calls ...uintptr) {
		for _, c := range calls {
			rules[c] = []bpf.Instruction{fail(e)}
		}
	}
	refuse(unix.EPERM, privileged...)
	refuse(unix.EPERM, archPrivileged...)
	refuse(unix.ENOSYS, absent...)
	refuse(unix.ENOTSUP, attributes...)

	rules[unix.SYS_CLONE] = denyBits(0, namespaces)
	rules[unix.SYS_IOCTL] = denyValues(1, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSCTTY,
		unix.TIOCCONS, unix.TIOCSETD)
	// PER_LINUX, PER_LINUX32, and the query of the present personality.
	rules[unix.SYS_PERSONALITY] = allowOnly(0, 0, 8, 0xffffffff)
	rules[unix.SYS_OPENAT] = denyBitsIfCreates(2, 3, setID)
	rules[unix.SYS_MKNODAT] = denyBits(2, setID)

	// These calls may only concern the calling process, not others of the same user.
	rules[unix.SYS_PRLIMIT64] = allowOnly(0, 0)
	for _, c := range []uintptr{unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR,
		unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER} {
		rules[c] = allowOnly(0, 0)
	}
	for _, c := range []uintptr{unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET} {
		rules[c] = allowOnly(1, 0)
	}
	f.sockets(rules)
	archCreates(rules)
	f.modes(rules)
	f.signals(rules)
	return rules
}

// sockets allows pairs of connected stream sockets and, with network, sockets of IP and of
// netlink's routes. It refuses pairs of datagram sockets, because each end could still send to any
// path.
func (f filter) sockets(rules map[uintptr][]bpf.Instruction) {
	rules[unix.SYS_SOCKETPAIR] = append([]bpf.Instruction{
		argument(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 1},
		fail(unix.EACCES), argument(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf},
	}, []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1},
		fail(unix.EACCES), allow,
	}...)
	if f.network {
		rules[unix.SYS_SOCKET] = []bpf.Instruction{
			argument(0),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 5},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 1},
			fail(unix.EACCES), argument(2), // netlink is allowed for routes only, to list network interfaces
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
			allow, fail(unix.EACCES),
		}
		return
	}
	for _, c := range []uintptr{unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND} {
		rules[c] = []bpf.Instruction{fail(unix.EACCES)}
	}
}

// modes restricts changes of file attributes.
func (f filter) modes(rules map[uintptr][]bpf.Instruction) {
	if f.notify {
		for _, c := range slices.Concat(changes, archChanges) {
			rules[c] = []bpf.Instruction{notify}
		}
		return
	}
	rules[unix.SYS_FCHMOD] = denyBits(1, setID)
	rules[unix.SYS_FCHMODAT] = denyBits(2, setID)
	rules[unix.SYS_FCHMODAT2] = denyBits(2, setID)
	archModes(rules)
}

// signals prevents signals to the protected processes.
func (f filter) signals(rules map[uintptr][]bpf.Instruction) {
	if len(f.protect) == 0 {
		return
	}
	targets := []uint32{^uint32(0)} // -1: all processes
	for _, pid := range f.protect {
		targets = append(targets, uint32(pid), uint32(-pid))
	}
	for _, c := range []uintptr{unix.SYS_KILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO,
		unix.SYS_RT_TGSIGQUEUEINFO} {
		rules[c] = denyValues(0, targets...)
	}
	for _, c := range []uintptr{unix.SYS_TKILL, unix.SYS_PIDFD_SEND_SIGNAL} {
		rules[c] = []bpf.Instruction{fail(unix.EPERM)}
	}
	rules[unix.SYS_FCNTL] = denyValues(1, setOwner, setSignal, setOwnerEx)
}

// assemble returns the filter's program as the kernel's struct sock_filter values.
func assemble(rules map[uintptr][]bpf.Instruction) ([]bpf.RawInstruction, error) {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		// System calls of the x32 ABI on amd64 have much greater numbers.
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: lastCall, SkipTrue: 1},
		fail(unix.ENOSYS),
	}
	for call := range uintptr(lastCall + 1) {
		if body, ok := rules[call]; ok {
			p = append(p, bpf.JumpIf{
				Cond: bpf.JumpNotEqual, Val: uint32(call), SkipTrue: uint8(len(body)),
			})
			p = append(p, body...)
		}
	}
	raw, err := bpf.Assemble(append(p, allow))
	if err != nil {
		return nil, fmt.Errorf("filter of system calls: %w", err)
	}
	return raw, nil
}

// bytes returns the filter's program in the binary form that bwrap reads.
func (f filter) bytes() ([]byte, error) {
	raw, err := assemble(f.rules())
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, r := range raw {
		b = binary.NativeEndian.AppendUint16(b, r.Op)
		b = append(b, r.Jt, r.Jf)
		b = binary.NativeEndian.AppendUint32(b, r.K)
	}
	return b, nil
}

// load puts the calling thread under rules, permanently, and returns the kernel's result: with
// NEW_LISTENER, the file from which the supervisor reads the system calls that wait for it.
func load(rules map[uintptr][]bpf.Instruction, flags uintptr) (int, error) {
	raw, err := assemble(rules)
	if err != nil {
		return -1, err
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	list := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	n, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&list)))
	if e != 0 {
		return -1, fmt.Errorf("filter of system calls: %w", e)
	}
	return int(n), nil
}
