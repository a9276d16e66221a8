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
		if err == nil && isOrphan(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// isMarked reports whether a process of this user has the mark.
func isMarked(pid int) (bool, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil || int(stat.Uid) != os.Getuid() {
		return false, err
	}
	text, err := os.ReadFile(dir + "/oom_score_adj")
	return strings.TrimSpace(string(text)) == strconv.Itoa(markOOM), err
}

// isFiltered reports whether the system calls of a process that lives are filtered more than ours.
func isFiltered(pid int) (bool, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false, err
	}
	own, err := os.ReadFile("/proc/self/status")
	return field(text, "Seccomp_filters:") > field(own, "Seccomp_filters:") &&
		!bytes.Contains(text, []byte("\nState:\tZ")), err
}

// isSupervisor reports whether a process is a supervisor, of this gateway or another one. A command
// can call itself one, but then it is filtered.
func isSupervisor(pid int) (bool, error) {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !strings.Contains(string(name), "\x00"+Argument+"\x00") {
		return false, err
	}
	filtered, err := isFiltered(pid)
	return !filtered, err
}

// maxTries is how often the processes above one are looked for while they end.
const maxTries = 100

// isOrphan reports whether a process is marked and no supervisor is above it, with nothing between
// them but what is marked. It reports false where it can't be known.
func isOrphan(start int) bool {
	if marked, err := isMarked(start); err != nil || !marked {
		return false
	}
	if filtered, err := isFiltered(start); err != nil || !filtered {
		return false
	}
	pid := start
	for range maxTries {
		s, ok := readStatus(pid)
		supervisor, err1 := isSupervisor(s.parent)
		marked, err2 := isMarked(s.parent)
		again, there := readStatus(pid)
		switch {
		case !ok || !there || s.parent != again.parent:
			if pid == start && !there {
				return false // it has ended
			}
			pid = start // what was above it has ended: now another process is
		case s.parent == 0: // out of sight
			return true
		case err1 != nil, err2 != nil, supervisor:
			return false
		case !marked:
			return true
		default:
			pid = s.parent
		}
	}
	return false
}
