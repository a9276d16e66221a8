//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How often the processes are measured. Most problems occur early, so the first intervals are
// short.
const (
	firstPause = 10 * time.Millisecond
	earlyPause = 20 * time.Millisecond
	laterPause = 100 * time.Millisecond
	early      = 2 * time.Second
	diskPeriod = 200 * time.Millisecond
)

// A watch measures the resources of a job's processes and reports the limit that they exceed. The
// kernel's own limits are per process, or do not apply to root.
type watch struct {
	limits  Limits
	folders []string
	begun   time.Time
	disk    time.Time // last measurement of the folders
	free    []space   // of the folders' file systems, at the start
	seen    []int     // processes whose limits are set
	rlimits map[int]unix.Rlimit
	open    int // files that this process has open before it is confined
}

// A space is an amount of free or used storage.
type space struct{ bytes, files int64 }

func (s space) max(other space) space {
	return space{max(s.bytes, other.bytes), max(s.files, other.files)}
}

// slack is how many bytes a command may write although the disk is too full.
const slack = 16 << 20

func newWatch(j *job, tmp string) *watch {
	w := &watch{limits: j.Limits, begun: time.Now(), rlimits: j.Limits.perProcess()}
	if n := j.Limits.Processes; n >= 0 && os.Getuid() != 0 {
		// The kernel counts all threads of the user for this limit, and does not apply it to root.
		// It is only the second line behind the watch, so it leaves room for the user's other
		// programs.
		all := uint64(threadsOf(os.Getuid())) + 2*uint64(n)
		w.rlimits[unix.RLIMIT_NPROC] = unix.Rlimit{Cur: all, Max: all}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		w.open = len(open)
	}
	w.folders = append([]string{tmp}, j.ReadWrite...)
	for _, folder := range w.folders {
		w.free = append(w.free, freeOn(folder))
	}
	return w
}

// perProcess returns the limits that the kernel enforces for each process.
func (l Limits) perProcess() map[int]unix.Rlimit {
	limits := make(map[int]unix.Rlimit)
	set := func(resource int, n int64) {
		if n >= 0 {
			limits[resource] = unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
		}
	}
	set(unix.RLIMIT_CORE, 0)
	// RLIMIT_AS would be wrong: many programs reserve much more address space than they use.
	set(unix.RLIMIT_DATA, l.Memory)
	set(unix.RLIMIT_FSIZE, l.FileSize)
	set(unix.RLIMIT_NOFILE, int64(l.OpenFiles))
	if l.CPU >= 0 {
		seconds := int64((l.CPU + time.Second - 1) / time.Second)
		limits[unix.RLIMIT_CPU] = unix.Rlimit{Cur: uint64(seconds), Max: uint64(seconds + 1)}
	}
	return limits
}

// threadsOf returns the number of a user's threads.
func threadsOf(uid int) (n int64) {
	for _, pid := range processes() {
		var stat unix.Stat_t
		if unix.Stat("/proc/"+strconv.Itoa(pid), &stat) != nil || int(stat.Uid) != uid {
			continue
		}
		if s, ok := readStatus(pid); ok {
			n += int64(s.threads)
		}
	}
	return n
}

// limitSelf applies the limits for files to this process, so that a new child has them from the
// start. undo removes them. The other limits take longer to exceed and are set later. Between the
// two calls the supervisor must not write to files.
func (w *watch) limitSelf() (undo func()) {
	before := make(map[int]syscall.Rlimit)
	for _, resource := range []int{unix.RLIMIT_FSIZE, unix.RLIMIT_NOFILE} {
		limit, ok := w.rlimits[resource]
		var old syscall.Rlimit
		if !ok || syscall.Getrlimit(resource, &old) != nil {
			continue
		}
		before[resource] = old
		if resource == unix.RLIMIT_NOFILE {
			limit.Cur = max(limit.Cur, uint64(w.open+ownFiles))
		}
		// unix.Setrlimit would not do: package syscall gives children the limit of open files from
		// before the runtime raised it, unless its own Setrlimit was called.
		lent := syscall.Rlimit{Cur: min(old.Max, limit.Cur), Max: old.Max}
		_ = syscall.Setrlimit(resource, &lent) // limit sets it again
	}
	return func() {
		for resource, old := range before {
			_ = syscall.Setrlimit(resource, &old) // raising it again is always allowed
		}
	}
}

// ownFiles is how many files the supervisor may need to open to start a command.
const ownFiles = 16

// limit sets the limits of a process. Processes that it has started before do not get them; look
// sets theirs.
func (w *watch) limit(pid int) {
	for resource, limit := range w.rlimits {
		_ = unix.Prlimit(pid, resource, &limit, nil) // it may have ended
	}
}

// run measures until a limit is exceeded, kills the processes, and returns after it has sent the
// limit to hits. It keeps a thread and sleeps in the kernel, so that it does not depend on other
// threads when there are many.
func (w *watch) run(hits chan<- string) {
	runtime.LockOSThread()
	for pause := firstPause; ; pause = w.pause() {
		t := unix.NsecToTimespec(int64(pause))
		_ = unix.Nanosleep(&t, nil) // waking up early does no harm
		if hit := w.measure(); hit != "" {
			hits <- hit
			killBelow() // now, because the receiver may get processor time late
			return
		}
	}
}

// pause returns the time until the next measurement.
func (w *watch) pause() time.Duration {
	if time.Since(w.begun) < early {
		return earlyPause
	}
	return laterPause
}

// measure returns the limit that is exceeded, or "".
func (w *watch) measure() string {
	pids := descendants(os.Getpid())
	if w.limits.Processes >= 0 && len(pids) > w.limits.Processes {
		return LimitProcesses
	}
	threads, memory := 0, int64(0)
	for _, pid := range pids {
		if !slices.Contains(w.seen, pid) {
			w.limit(pid)
		}
		s, _ := readStatus(pid) // zero if it has ended
		threads += s.threads
		memory += s.memory
	}
	w.seen = pids
	if w.limits.Processes >= 0 && threads > w.limits.Processes {
		return LimitProcesses
	}
	if w.limits.Memory >= 0 && memory > w.limits.Memory && w.exactMemory(pids) > w.limits.Memory {
		return LimitMemory
	}
	now := time.Now()
	if now.Sub(w.disk) < diskPeriod {
		return ""
	}
	hit := w.measureDisk(pids)
	took := time.Since(now)
	w.disk = now.Add(10 * took) // rarely if there are many files
	return hit
}

// exactMemory returns the memory of all processes together. It counts shared memory once.
func (w *watch) exactMemory(pids []int) (sum int64) {
	for _, pid := range pids {
		if s, ok := readStatus(pid); ok {
			sum += shared(pid, s.memory)
		}
	}
	return sum
}

// measureDisk returns the disk limit that is exceeded, or "". It counts written files only if the
// file systems have less free space than before, because counting many files is slow.
func (w *watch) measureDisk(pids []int) string {
	less, lost := false, space{}
	for i, folder := range w.folders {
		now := freeOn(folder)
		d := space{w.free[i].bytes - now.bytes, w.free[i].files - now.files}
		// Other programs may fill the disk too, and a command that only removes files may go on.
		if now.bytes < w.limits.KeepFree && d.bytes > slack && w.written(pids, d).bytes > slack {
			return LimitFree
		}
		lost = lost.max(d)
		if w.limits.Disk >= 0 && d.bytes > w.limits.Disk/4 ||
			w.limits.Files >= 0 && d.files > int64(w.limits.Files/4) {
			less = true
		}
	}
	if !less {
		return ""
	}
	used := w.written(pids, lost)
	switch {
	case w.limits.Disk >= 0 && used.bytes > w.limits.Disk:
		return LimitDisk
	case w.limits.Files >= 0 && used.files > int64(w.limits.Files):
		return LimitFiles
	}
	return ""
}

// written returns the size and number of files that were changed since the start. It includes
// deleted files that are still open. A command can hide files where no path leads to them: in a
// folder that is too deep, or below one without permissions. If it has hidden some, written returns
// at least lost, by which the file systems have less free space.
func (w *watch) written(pids []int, lost space) (sum space) {
	seen := make(map[[2]uint64]bool) // files by device and inode
	count := func(stat *unix.Stat_t) {
		id := [2]uint64{stat.Dev, stat.Ino}
		changed := time.Unix(stat.Ctim.Sec, stat.Ctim.Nsec)
		if !seen[id] && !changed.Before(w.begun.Add(-time.Second)) {
			seen[id] = true
			sum.bytes += stat.Blocks * 512
			sum.files++
		}
	}
	hidden := false
	for _, folder := range w.folders {
		_ = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			var stat unix.Stat_t
			switch failed := unix.Lstat(path, &stat); {
			case failed == unix.ENAMETOOLONG, failed == unix.EACCES:
				hidden = true
			case failed == nil && err == nil:
				count(&stat)
			case failed == nil: // a folder of another user can't be the command's
				hidden = hidden || errors.Is(err, unix.EACCES) && int(stat.Uid) == os.Geteuid()
			}
			return nil // the file may have been removed
		})
	}
	if hidden {
		sum = sum.max(lost)
	}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
		files, _ := os.ReadDir(dir) // nil if it has ended
		for _, f := range files {
			var stat unix.Stat_t
			if unix.Stat(dir+f.Name(), &stat) == nil && stat.Nlink == 0 &&
				stat.Mode&unix.S_IFMT == unix.S_IFREG {
				count(&stat)
			}
		}
	}
	return sum
}

func freeOn(folder string) space {
	var s unix.Statfs_t
	if unix.Statfs(folder, &s) != nil {
		return space{}
	}
	return space{int64(s.Bavail) * s.Bsize, int64(s.Ffree)}
}
