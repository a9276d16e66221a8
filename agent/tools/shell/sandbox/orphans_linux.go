//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// markOOM is the oom_score_adj of all that a sandbox runs. The odd number is a mark: with Landlock
// a command can't write to /proc, so that what comes of it can't shed it.
const markOOM = 803

// orphansTime bounds how long orphans are ended that make more of themselves all the time.
const orphansTime = 2 * time.Second

// EndOrphans ends what commands behind Landlock have left running because their supervisor has
// died, for example when the system had no thread left for it: then the processes go to the
// system's first one, without limits. With bubblewrap the kernel ends them. It returns how many
// there were. Without a sandbox, mode [None], such processes can't be told from others.
func EndOrphans() (n int) {
	for end := time.Now().Add(orphansTime); ; {
		found := orphans()
		for _, pid := range found {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		n += len(found)
		if len(found) == 0 || time.Now().After(end) {
			return n
		}
	}
}

// orphans returns the processes that a sandbox has marked and that no supervisor is above.
func orphans() (found []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && isMarked(pid) && isFiltered(pid) && !isSupervised(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// isMarked reports whether a process of this user has the mark.
func isMarked(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil || int(stat.Uid) != os.Getuid() {
		return false
	}
	return strings.TrimSpace(content(dir+"/oom_score_adj")) == strconv.Itoa(markOOM)
}

// isFiltered reports whether the system calls of a process that lives are filtered more than ours.
func isFiltered(pid int) bool {
	text := []byte(content("/proc/" + strconv.Itoa(pid) + "/status"))
	own := []byte(content("/proc/self/status"))
	return field(text, "Seccomp_filters:") > field(own, "Seccomp_filters:") &&
		!bytes.Contains(text, []byte("\nState:\tZ"))
}

// isSupervised reports whether a supervisor, of this gateway or another one, is above a process,
// with nothing between them but what is marked. A command can call itself a supervisor, but then
// it is filtered.
func isSupervised(pid int) bool {
	for isMarked(pid) {
		s, ok := readStatus(pid)
		if !ok {
			return true // it has ended
		}
		pid = s.parent
		name := content("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if !isFiltered(pid) && strings.Contains(name, "\x00"+Argument+"\x00") {
			return true
		}
	}
	return false
}
