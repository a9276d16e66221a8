package extract

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// niceness is the priority of a child: the gateway goes first.
const niceness = 5

// confine sets the bounds of this process, for good. The memory counts beside what the program has
// taken to start.
func confine(t task) error {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness) // best effort
	// The first to go if the machine runs out of memory: best effort, too.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	var pages [6]int64 // size, resident, shared, text, library, data and stack
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(string(statm), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4],
		&pages[5]); err != nil {
		return fmt.Errorf("/proc/self/statm: %w", err)
	}
	memory := uint64(t.Memory + pages[5]*int64(os.Getpagesize()))
	seconds := uint64(t.CPU / time.Second)
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_DATA, memory}, {unix.RLIMIT_CPU, seconds},
		{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0},
	} {
		var old unix.Rlimit
		if err := unix.Getrlimit(l.resource, &old); err != nil {
			return err
		}
		most := min(l.most, old.Max)
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return nil
}
