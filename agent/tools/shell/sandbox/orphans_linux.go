//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// markOOM is the oom_score_adj of all processes in sandboxes. The odd number is a mark: with
// Landlock, a command can't write to /proc, so its processes can't remove the mark.
const markOOM = 803

// orphansTime bounds the time of [EndOrphans] if orphans keep starting new processes.
const orphansTime = 2 * time.Second

// EndOrphans kills processes of Landlock commands whose supervisor has died, for example because
// the system had no thread left for it. Such processes are adopted by the system's first process
// and have no limits any more. With bubblewrap, the kernel kills them. EndOrphans returns the
// number of killed processes. In mode [None] it can't tell such processes from others.
func EndOrphans() (n int) {
	for end := time.Now().Add(orphansTime); ; {
		// Those that have no supervisor as an ancestor.
		found := slices.DeleteFunc(processes(), func(pid int) bool { return !isOrphan(pid) })
		for _, pid := range found {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		n += len(found)
		if len(found) == 0 || time.Now().After(end) {
			return n
		}
	}
}

// isMarked reports whether a process belongs to this user and has the mark. It uses plain system
// calls, because it is called for every process of the system.
func isMarked(pid int) (bool, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	fd, err := unix.Open(dir+"/oom_score_adj", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var text [16]byte
	n, err := unix.Read(fd, text[:])
	if err != nil || strings.TrimSpace(string(text[:n])) != strconv.Itoa(markOOM) {
		return false, err
	}
	var stat unix.Stat_t
	err = unix.Stat(dir, &stat) // if the process is not dumpable, the files in dir belong to root
	return err == nil && int(stat.Uid) == os.Getuid(), err
}

// isFiltered reports whether a running process has more seccomp filters than this one.
func isFiltered(pid int) (bool, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false, err
	}
	own, err := os.ReadFile("/proc/self/status")
	return field(text, "Seccomp_filters:") > field(own, "Seccomp_filters:") &&
		!bytes.Contains(text, []byte("\nState:\tZ")), err
}

// isSupervisor reports whether a process is a supervisor of any gateway. A command can give itself
// the same arguments, but it has a filter.
func isSupervisor(pid int) (bool, error) {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !strings.Contains(string(name), "\x00"+Argument+"\x00") {
		return false, err
	}
	filtered, err := isFiltered(pid)
	return !filtered, err
}

// maxTries is how many steps isOrphan makes while ancestors keep ending.
const maxTries = 100

// isOrphan reports whether a process is marked and filtered, and none of its ancestors up to the
// first unmarked one is a supervisor. If this can't be determined, it returns false.
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
			pid = start // the parent has ended and another process is the parent now: begin again
		case s.parent == 0: // the parent is outside of this PID namespace
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
