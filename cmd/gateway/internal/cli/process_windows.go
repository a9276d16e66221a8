package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// inBackground reports whether the shell has started this process in the background of its
// terminal, which is never so here.
func inBackground(*os.File) bool { return false }

// stepBack lets other processes have the processor first.
func stepBack() error {
	return windows.SetPriorityClass(windows.CurrentProcess(), windows.BELOW_NORMAL_PRIORITY_CLASS)
}
