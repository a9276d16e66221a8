package collector

import (
	"fmt"
	"os"
	"slices"
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

// TestUnchanged checks that only mappings that never changed are dropped. Changed pages can also
// be in swap.
func TestUnchanged(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 2470 /opt/gateway
Rss:                 900 kB
Anonymous:             0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
VmFlags: rd ex mr mw me
00500000-00600000 r--p 00100000 fe:00 2470 /opt/gateway
Rss:                   0 kB
Anonymous:             0 kB
Swap:                 64 kB
SwapPss:              64 kB
Locked:                0 kB
VmFlags: rd mr mw me ac
00600000-00700000 r--p 00200000 fe:00 2470 /opt/gateway
Anonymous:             8 kB
Swap:                  0 kB
Locked:                0 kB
00700000-00800000 rw-p 00300000 fe:00 2470 /opt/gateway
Anonymous:             0 kB
Swap:                  0 kB
Locked:                0 kB
00800000-00900000 r--p 00000000 fe:00 2471 /opt/library
Anonymous:             0 kB
Swap:                  0 kB
Locked:                0 kB
00900000-00a00000 r--p 00400000 fe:00 2470 /opt/gateway
Anonymous:             0 kB
Swap:                  0 kB
Locked:                8 kB
00a00000-00b00000 r--p 00500000 fe:00 2470 /opt/gateway
Anonymous:             0 kB
Swap:                  0 kB
Locked:                0 kB
`
	got, err := unchanged(strings.NewReader(smaps), "/opt/gateway")
	want := []mapping{{0x400000, 0x500000}, {0xa00000, 0xb00000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
}
