package telemetry

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mapped returns the number of kilobytes of the program's file in memory. It reads all of them
// first if fill is set.
func mapped(t *testing.T, fill bool) (total int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	own := false
	for line := range strings.Lines(string(smaps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x", &from, &to); n == 2 {
			if own = strings.HasSuffix(line, " "+program+"\n"); own && fill {
				_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_POPULATE_READ)
			}
		}
		var rss int
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &rss); n == 1 && own {
			total += rss
		}
	}
	return total
}

func TestDropProgram(t *testing.T) {
	mapped(t, true)
	before := mapped(t, false)
	if err := dropProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t, false); after >= before {
		t.Errorf("%d kB of the program are in memory, %d before; want fewer", after, before)
	}
}
