//go:build !unix

package mcp

import (
	"os"
	"os/exec"
)

// ownGroup does nothing: other systems have no process groups.
func ownGroup(*exec.Cmd) {}

// endGroup kills p. Its process group, if any, goes on.
func endGroup(p *os.Process, _ bool) {
	_ = p.Kill() // it may have ended
}
