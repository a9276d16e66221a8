package sandbox

import (
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const auditArch = unix.AUDIT_ARCH_X86_64

// archPrivileged are the privileged system calls that only this architecture has.
var archPrivileged = []uintptr{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT,
	unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS,
	unix.SYS_QUERY_MODULE,
}

// archChanges are the older system calls for [changes].
var archChanges = []uintptr{
	unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES,
	unix.SYS_FUTIMESAT,
}

// archModes adds the rules for older system calls that set a mode.
func archModes(rules map[uintptr][]bpf.Instruction) {
	rules[unix.SYS_CHMOD] = denyBits(1, setID)
}

// archCreates adds the rules for older system calls that create files.
func archCreates(rules map[uintptr][]bpf.Instruction) {
	rules[unix.SYS_OPEN] = denyBitsIfCreates(1, 2, setID)
	rules[unix.SYS_CREAT] = denyBits(1, setID)
	rules[unix.SYS_MKNOD] = denyBits(1, setID)
}

// archForms describes the system calls of [archChanges].
var archForms = map[int32]argumentLayout{
	unix.SYS_CHMOD:  {what: 'm', dir: -1, path: 0, value: 1, flags: -1},
	unix.SYS_CHOWN:  {what: 'o', dir: -1, path: 0, value: 1, flags: -1},
	unix.SYS_LCHOWN: {what: 'o', dir: -1, path: 0, value: 1, flags: -1, noFollow: true},
	unix.SYS_UTIME:  {what: 't', dir: -1, path: 0, value: 1, flags: -1},
	unix.SYS_UTIMES: {
		what: 't', dir: -1, path: 0, value: 1, flags: -1, unit: time.Microsecond,
	},
	unix.SYS_FUTIMESAT: {
		what: 't', dir: 0, path: 1, value: 2, flags: -1, unit: time.Microsecond,
	},
}
