package extract

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// niceness is the nice value of a child, so that the gateway goes first.
const niceness = 5

// confine sets the limits of this process, permanently. The memory limit is added to the memory
// that the program has used to start.
func confine(t task) error {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness) // a failure does not matter
	// The child is the first victim of the OOM killer. A failure does not matter.
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

// used returns the processor time of this process.
func used() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // every Linux has this clock
	return time.Duration(t.Nano())
}
