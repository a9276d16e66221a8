//go:build amd64 || arm64

package sandbox

import (
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

// How often the processes are looked at: at first often, since trouble comes soon.
const (
	firstLook  = 10 * time.Millisecond
	earlyLook  = 20 * time.Millisecond
	laterLook  = 100 * time.Millisecond
	early      = 2 * time.Second
	diskPeriod = 200 * time.Millisecond
)

// A watch measures what the processes of a job use and says which limit is exceeded. The kernel's
// own limits are per process or don't hold for root.
type watch struct {
	limits  Limits
	folders []string
	begun   time.Time
	disk    time.Time // last look at the folders
	free    []space   // of folders, at the start or the last count
	seen    []int     // processes that have their limits
	rlimits map[int]unix.Rlimit
	open    int // files that this process has open, before it is confined
}

// A space is what is free on a file system, or used of it.
type space struct{ bytes, files int64 }

// slack is how many bytes a command may write to a disk that is too full.
const slack = 16 << 20

func newWatch(j *job, tmp string) *watch {
	w := &watch{limits: j.Limits, begun: time.Now(), rlimits: j.Limits.perProcess()}
	if n := j.Limits.Processes; n >= 0 && os.Getuid() != 0 {
		// This counts all of the user's, and does not hold for root. It is the wall behind the watch:
		// the user's other programs must have room to begin something too.
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

// perProcess returns the limits that the kernel holds.
func (l Limits) perProcess() map[int]unix.Rlimit {
	limits := make(map[int]unix.Rlimit)
	set := func(resource int, n int64) {
		if n >= 0 {
			limits[resource] = unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
		}
	}
	set(unix.RLIMIT_CORE, 0)
	// Not the address space: many programs reserve far more of it than they use.
	set(unix.RLIMIT_DATA, l.Memory)
	set(unix.RLIMIT_FSIZE, l.FileSize)
	set(unix.RLIMIT_NOFILE, int64(l.OpenFiles))
	if l.CPU >= 0 {
		seconds := int64((l.CPU + time.Second - 1) / time.Second)
		limits[unix.RLIMIT_CPU] = unix.Rlimit{Cur: uint64(seconds), Max: uint64(seconds + 1)}
	}
	return limits
}

// threadsOf returns how many threads a user has.
func threadsOf(uid int) (n int64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		var stat unix.Stat_t
		if unix.Stat("/proc/"+e.Name(), &stat) != nil || int(stat.Uid) != uid {
			continue
		}
		if s, ok := readStatus(pid); ok {
			n += int64(s.threads)
		}
	}
	return n
}

// lend puts this process under the limits for files, so that what it starts has them from its first
// moment, and returns what takes them off again. The others take longer to exceed. Meanwhile the
// supervisor must write nothing.
func (w *watch) lend() (takeOff func()) {
	size := lend(unix.RLIMIT_FSIZE, w.rlimits, w.open)
	files := lend(unix.RLIMIT_NOFILE, w.rlimits, w.open)
	return func() {
		size()
		files()
	}
}

// ownFiles is how many files the supervisor may have to open while it starts a command.
const ownFiles = 16

func lend(resource int, rlimits map[int]unix.Rlimit, open int) (takeOff func()) {
	limit, ok := rlimits[resource]
	var old syscall.Rlimit
	if !ok || syscall.Getrlimit(resource, &old) != nil {
		return func() {}
	}
	if resource == unix.RLIMIT_NOFILE {
		limit.Cur = max(limit.Cur, uint64(open+ownFiles))
	}
	// Of package syscall, which else gives what it starts the limit from before it has raised its own.
	lent := syscall.Rlimit{Cur: min(old.Max, limit.Cur), Max: old.Max}
	_ = syscall.Setrlimit(resource, &lent) // limit follows
	return func() {
		_ = syscall.Setrlimit(resource, &old) // it may always be put back
	}
}

// limit gives a process its limits. It may have made others before; look finds them.
func (w *watch) limit(pid int) {
	for resource, limit := range w.rlimits {
		_ = unix.Prlimit(pid, resource, &limit, nil) // it may have ended
	}
}

// run looks again and again, sends the limit that is exceeded, and returns. It keeps a thread to
// itself and sleeps in the kernel, so as not to depend on any other thread when there are many.
func (w *watch) run(hits chan<- string) {
	runtime.LockOSThread()
	for pause := firstLook; ; pause = w.pause() {
		t := unix.NsecToTimespec(int64(pause))
		_ = unix.Nanosleep(&t, nil) // to be woken early does no harm
		if hit := w.look(); hit != "" {
			hits <- hit
			killBelow() // at once: others may have to wait for their turn
			return
		}
	}
}

// pause returns the time to the next look.
func (w *watch) pause() time.Duration {
	if time.Since(w.begun) < early {
		return earlyLook
	}
	return laterLook
}

// look returns which limit is exceeded, or "".
func (w *watch) look() string {
	pids := descendants(os.Getpid())
	if w.limits.Processes >= 0 && len(pids) > w.limits.Processes {
		return LimitProcesses
	}
	threads, memory := 0, int64(0)
	for _, pid := range pids {
		if !slices.Contains(w.seen, pid) {
			w.limit(pid)
		}
		s, _ := readStatus(pid) // nothing if it has ended
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
	hit := w.lookAtDisk(pids)
	took := time.Since(now)
	w.disk = now.Add(10 * took) // where there are many files, seldom
	return hit
}

// exactMemory returns the memory of processes together, what they share counted once.
func (w *watch) exactMemory(pids []int) (sum int64) {
	for _, pid := range pids {
		if s, ok := readStatus(pid); ok {
			sum += shared(pid, s.memory)
		}
	}
	return sum
}

// lookAtDisk counts what was written, but only if the file systems have less room than
// before: to count is slow where there are many files.
func (w *watch) lookAtDisk(pids []int) string {
	less := false
	for i, folder := range w.folders {
		now := freeOn(folder)
		d := space{w.free[i].bytes - now.bytes, w.free[i].files - now.files}
		// Others may fill the disk, and what only removes files goes on.
		if now.bytes < w.limits.KeepFree && d.bytes > slack && w.written(pids).bytes > slack {
			return LimitFree
		}
		if w.limits.Disk >= 0 && d.bytes > w.limits.Disk/4 ||
			w.limits.Files >= 0 && d.files > int64(w.limits.Files/4) {
			less = true
		}
	}
	if !less {
		return ""
	}
	used := w.written(pids)
	switch {
	case w.limits.Disk >= 0 && used.bytes > w.limits.Disk:
		return LimitDisk
	case w.limits.Files >= 0 && used.files > int64(w.limits.Files):
		return LimitFiles
	}
	return ""
}

// written returns what the files hold that were changed since the start, those too that have no
// name any more but are open.
func (w *watch) written(pids []int) (sum space) {
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
	for _, folder := range w.folders {
		_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			var stat unix.Stat_t
			if err == nil && unix.Lstat(path, &stat) == nil {
				count(&stat)
			}
			return nil // what can't be read is left out
		})
	}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
		files, _ := os.ReadDir(dir) // none if it has ended
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
