//go:build unix

package mcp

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup runs cmd in a new process group, so that the processes it starts end with it.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !cmd.SysProcAttr.Setsid { // setsid creates a group too
		cmd.SysProcAttr.Setpgid = true
	}
}

// endGroup sends SIGTERM to the process group of p, or SIGKILL if force is set.
func endGroup(p *os.Process, force bool) {
	signal := syscall.SIGTERM
	if force {
		signal = syscall.SIGKILL
	}
	_ = syscall.Kill(-p.Pid, signal) // all may have ended
}
