package sandbox

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const auditArch = unix.AUDIT_ARCH_AARCH64

// arm64 does not have the older system calls.
var archPrivileged, archChanges []uintptr

func archModes(map[uintptr][]bpf.Instruction)   {}
func archCreates(map[uintptr][]bpf.Instruction) {}

var archForms map[int32]argumentLayout
