package cli

import "golang.org/x/sys/windows"

// stepBack lets other processes have the processor first.
func stepBack() error {
	return windows.SetPriorityClass(windows.CurrentProcess(), windows.BELOW_NORMAL_PRIORITY_CLASS)
}
