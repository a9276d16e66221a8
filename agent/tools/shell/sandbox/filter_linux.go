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

// A filter says which system calls a command may make. It refuses calls that nobody uses in
// everyday work, calls that have often been the way out of a sandbox, and calls that are younger
// than this list.
type filter struct {
	network bool

	// notify hands calls to the supervisor that change the attributes of files: Landlock has no rules
	// for them.
	notify bool

	// protect are processes that must get no signal. It is for kernels whose Landlock lets signals
	// through: with it, ways to send signals that can't be looked into are refused.
	protect []int
}

// lastCall is the youngest system call that the filter has been thought through for,
// rseq_slice_yield.
const lastCall = 471

// The offsets of what a filter sees, struct seccomp_data in linux/seccomp.h.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

var (
	allow  = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	notify = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
)

// fail returns the end of a call with this error.
func fail(e unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(e)}
}

// argument loads the lower half of an argument: the calls looked at take 32 bits of it.
func argument(n int) bpf.Instruction {
	return bpf.LoadAbsolute{Off: uint32(offsetArgs + 8*n), Size: 4}
}

// among allows the call if the argument is one of values, or refuses it.
func among(n int, e unix.Errno, values ...uint32) []bpf.Instruction {
	return choose(n, fail(e), allow, values)
}

// notAmong refuses the call if the argument is one of values, or allows it.
func notAmong(n int, e unix.Errno, values ...uint32) []bpf.Instruction {
	return choose(n, allow, fail(e), values)
}

func choose(n int, otherwise, found bpf.Instruction, values []uint32) []bpf.Instruction {
	p := []bpf.Instruction{argument(n)}
	for i, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(p, otherwise, found)
}

// without refuses the call if the argument has one of the bits.
func without(n int, bits uint32, e unix.Errno) []bpf.Instruction {
	return []bpf.Instruction{
		argument(n), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipTrue: 1}, allow, fail(e),
	}
}

// withoutIfCreates is without for calls that look at the argument only if flags have O_CREAT.
func withoutIfCreates(flags, n int, bits uint32) []bpf.Instruction {
	return append([]bpf.Instruction{
		argument(flags), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.O_CREAT, SkipTrue: 1}, allow,
	}, without(n, bits, unix.EPERM)...)
}

// setID are the bits of a file's mode that lend its owner's rights to whoever runs it. As root,
// such a file would be a way up for others on the machine.
const setID = unix.S_ISUID | unix.S_ISGID

// namespaces are the flags of clone that make namespaces.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Commands of fcntl that can have a signal sent, from fcntl.h.
const (
	setOwner   = 8
	setSignal  = 10
	setOwnerEx = 15
)

// rules returns what is done with which system call, each ending in a return.
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

	rules[unix.SYS_CLONE] = without(0, namespaces, unix.EPERM)
	rules[unix.SYS_IOCTL] = notAmong(1, unix.EPERM, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSCTTY,
		unix.TIOCCONS, unix.TIOCSETD)
	rules[unix.SYS_PERSONALITY] = among(0, unix.EPERM, 0, 8, 0xffffffff) // Linux, ask
	rules[unix.SYS_OPENAT] = withoutIfCreates(2, 3, setID)
	rules[unix.SYS_MKNODAT] = without(2, setID, unix.EPERM)

	// On other processes that run as the same user.
	rules[unix.SYS_PRLIMIT64] = among(0, unix.EPERM, 0)
	for _, c := range []uintptr{unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR,
		unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER} {
		rules[c] = among(0, unix.EPERM, 0)
	}
	for _, c := range []uintptr{unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET} {
		rules[c] = among(1, unix.EPERM, 0)
	}
	f.sockets(rules)
	archCreates(rules)
	f.modes(rules)
	f.signals(rules)
	return rules
}

// sockets lets only those be made that lead nowhere. Pairs of datagrams are no such: either end
// can still send to any path.
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
			fail(unix.EACCES), argument(2), // of netlink only routes, to look at interfaces
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1},
			allow, fail(unix.EACCES),
		}
		return
	}
	for _, c := range []uintptr{unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND} {
		rules[c] = []bpf.Instruction{fail(unix.EACCES)}
	}
}

// modes is about the attributes of files.
func (f filter) modes(rules map[uintptr][]bpf.Instruction) {
	if f.notify {
		for _, c := range slices.Concat(changes, archChanges) {
			rules[c] = []bpf.Instruction{notify}
		}
		return
	}
	rules[unix.SYS_FCHMOD] = without(1, setID, unix.EPERM)
	rules[unix.SYS_FCHMODAT] = without(2, setID, unix.EPERM)
	rules[unix.SYS_FCHMODAT2] = without(2, setID, unix.EPERM)
	archModes(rules)
}

// signals keeps them from the processes that are protected.
func (f filter) signals(rules map[uintptr][]bpf.Instruction) {
	if len(f.protect) == 0 {
		return
	}
	targets := []uint32{^uint32(0)} // -1: everybody
	for _, pid := range f.protect {
		targets = append(targets, uint32(pid), uint32(-pid))
	}
	for _, c := range []uintptr{unix.SYS_KILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO,
		unix.SYS_RT_TGSIGQUEUEINFO} {
		rules[c] = notAmong(0, unix.EPERM, targets...)
	}
	for _, c := range []uintptr{unix.SYS_TKILL, unix.SYS_PIDFD_SEND_SIGNAL} {
		rules[c] = []bpf.Instruction{fail(unix.EPERM)}
	}
	rules[unix.SYS_FCNTL] = notAmong(1, unix.EPERM, setOwner, setSignal, setOwnerEx)
}

// assemble returns the program of a filter: one struct sock_filter of the kernel after another.
func assemble(rules map[uintptr][]bpf.Instruction) ([]bpf.RawInstruction, error) {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		// The x32 calls of amd64 have numbers far above.
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

// bytes returns the filter as a program that loads it wants to read it.
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

// load puts the calling thread under rules, for good, and returns the file that the calls come
// from which are handed to the supervisor.
func load(rules map[uintptr][]bpf.Instruction) (listener int, err error) {
	// So that a signal does not break off a call that is being answered; from Linux 5.19 on.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER |
		unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	return loadFilter(rules, flags)
}

// loadFilter puts the calling thread under rules, and returns what the kernel does.
func loadFilter(rules map[uintptr][]bpf.Instruction, flags uintptr) (int, error) {
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
