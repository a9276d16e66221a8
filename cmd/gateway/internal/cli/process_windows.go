package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// inBackground returns false: Windows has no background processes on terminals.
func inBackground(*os.File) bool { return false }

// lowerPriority lowers the CPU priority of this process.
func lowerPriority() error {
	return windows.SetPriorityClass(windows.CurrentProcess(), windows.BELOW_NORMAL_PRIORITY_CLASS)
}
