package collector

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropProgram unmaps the pages of the program's file from memory, most of which only the start has
// used. The kernel maps a page again when the program needs it.
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
	list, err := unchanged(f, program)
	if err != nil {
		return err
	}
	for _, m := range list {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
		if errno != 0 {
			return errno
		}
	}
	return nil
}

// A mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// unchanged returns the mappings of a program's file that can be dropped. smaps is in the format of
// /proc/self/smaps. A mapping with changed pages can't be dropped: the changes would be lost. A
// linker changes pages before it makes them read-only. Linux calls them anonymous while they are in
// memory, and counts them only as Swap while they are not.
func unchanged(smaps io.Reader, program string) (list []mapping, err error) {
	var m mapping // the present one if it can be dropped, or zero
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		var from, to uintptr
		var mode, field string
		var size int
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n == 3 {
			m = mapping{}
			if strings.HasSuffix(line, " "+program) && !strings.Contains(mode, "w") {
				m = mapping{from, to}
			}
		}
		if n, _ := fmt.Sscanf(line, "%s %d kB", &field, &size); n < 2 || m.end == 0 {
			continue
		}
		switch {
		case (field == "Anonymous:" || field == "Swap:" || field == "Locked:") && size > 0:
			m = mapping{}
		case field == "Locked:": // the last of these fields
			list, m = append(list, m), mapping{}
		}
	}
	return list, lines.Err()
}
