//go:build !unix

package mcp

import (
	"os"
	"os/exec"
)

// ownGroup does nothing: there are no process groups here.
func ownGroup(*exec.Cmd) {}

// endGroup ends p.
func endGroup(p *os.Process, _ bool) {
	_ = p.Kill() // it may have ended
}
