package telemetry

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropProgram unmaps the pages of the program's file from memory, most of which only the start has
// used. The kernel maps a page again when the program needs it.
//
// It skips a mapping with changed pages, which Linux calls anonymous: the changes would be lost.
func dropProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var start, end uintptr // the present mapping if it can be dropped, or 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var from, to uintptr
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n == 3 {
			start, end = 0, 0
			if strings.HasSuffix(line, " "+program) && !strings.Contains(mode, "w") {
				start, end = from, to
			}
		}
		var changed int
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &changed); n == 1 && changed == 0 && end > 0 {
			_, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED)
			if errno != 0 {
				return errno
			}
		}
	}
	return lines.Err()
}
