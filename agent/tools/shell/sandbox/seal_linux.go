//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Seal permanently restricts this process to computing: afterwards it can't open files or sockets,
// start processes or signal other processes. It can still use files that are open. If Seal returns
// an error, it has not restricted system calls.
func Seal() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: seal: no new privileges: %w", err)
	}
	// TSYNC restricts all threads or none. The kernel returns the ID of a thread that prevents it.
	switch n, err := load(sealed(unix.Getpid()), unix.SECCOMP_FILTER_FLAG_TSYNC); {
	case err != nil:
		return fmt.Errorf("sandbox: seal: %w", err)
	case n != 0:
		return fmt.Errorf("sandbox: seal: thread %d has a filter of its own", n)
	}
	return nil
}

// computing are the system calls that the Go runtime needs for a program that only computes, reads
// and writes.
var computing = []uintptr{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE,
	unix.SYS_BRK, unix.SYS_MREMAP,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_RESTART_SYSCALL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_FCNTL, unix.SYS_FSTAT,
}

// sealed returns the rules for a process that only computes.
func sealed(self int) map[uintptr][]bpf.Instruction {
	rules := make(map[uintptr][]bpf.Instruction)
	for call := range uintptr(lastCall + 1) {
		rules[call] = []bpf.Instruction{fail(unix.EPERM)}
	}
	for _, call := range computing {
		delete(rules, call)
	}
	// Allow threads but no processes, and the signals with which the Go runtime preempts
	// goroutines.
	rules[unix.SYS_CLONE] = []bpf.Instruction{
		argument(0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD, SkipTrue: 1},
		fail(unix.EPERM), allow,
	}
	rules[unix.SYS_CLONE3] = []bpf.Instruction{fail(unix.ENOSYS)} // C libraries use clone then
	rules[unix.SYS_TGKILL] = allowOnly(0, uint32(self))
	return rules
}
