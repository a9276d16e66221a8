//go:build unix

package mcp

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup lets cmd run in a process group of its own, so that what it starts ends with it.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !cmd.SysProcAttr.Setsid { // which makes a group, too
		cmd.SysProcAttr.Setpgid = true
	}
}

// endGroup asks the group of p to end, or makes it.
func endGroup(p *os.Process, force bool) {
	signal := syscall.SIGTERM
	if force {
		signal = syscall.SIGKILL
	}
	_ = syscall.Kill(-p.Pid, signal) // there may be nobody left
}
