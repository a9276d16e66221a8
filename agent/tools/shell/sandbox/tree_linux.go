//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// descendants returns the descendants of root. It leaves out processes that end in the meantime.
func descendants(root int) []int {
	var found []int
	walkDescendants(root, func(pid int) { found = append(found, pid) })
	return found
}

// killBelow kills each descendant of this process as soon as it finds it. So it is faster than
// processes that keep starting new ones. Orphaned processes become children of this process.
func killBelow() {
	walkDescendants(os.Getpid(), func(pid int) {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	})
}

// walkDescendants calls fn for the descendants of root, level by level. It calls fn for all
// processes of a level before it looks for their children.
func walkDescendants(root int, fn func(pid int)) {
	children := childrenOf
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		children = allChildren() // a kernel without lists of children
	}
	for level := children(root); len(level) > 0; {
		for _, pid := range level {
			fn(pid)
		}
		var next []int
		for _, pid := range level {
			next = append(next, children(pid)...)
		}
		level = next
	}
}

// childrenOf returns the children of all threads of a process.
func childrenOf(pid int) []int {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil // it has ended
	}
	var found []int
	for _, thread := range threads {
		text, err := os.ReadFile(tasks + "/" + thread.Name() + "/children")
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}

// processes returns all processes that this one can see.
func processes() (pids []int) {
	entries, _ := os.ReadDir("/proc") // a sandbox may hide all of /proc
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// allChildren reads the parents of all processes and returns a function like childrenOf.
func allChildren() func(pid int) []int {
	children := make(map[int][]int)
	for _, pid := range processes() {
		if s, ok := readStatus(pid); ok {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	return func(pid int) []int { return children[pid] }
}

// A status describes the resources of a process.
type status struct {
	parent  int
	threads int
	memory  int64 // bytes of private memory, and of written shared memory
}

func readStatus(pid int) (s status, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return s, false
	}
	s.parent = int(field(text, "PPid:"))
	s.threads = int(field(text, "Threads:"))
	s.memory = (field(text, "RssAnon:") + field(text, "RssShmem:")) << 10
	return s, true
}

// shared returns the memory of a process in bytes, with its proportional part of shared memory. If
// that is unknown, it returns otherwise.
func shared(pid int, otherwise int64) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil || !bytes.Contains(text, []byte("Pss_Anon:")) {
		return otherwise
	}
	return (field(text, "Pss_Anon:") + field(text, "Pss_Shmem:")) << 10
}

// field returns the number that follows name at the beginning of a line, or 0.
func field(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			words := bytes.Fields(rest)
			if len(words) == 0 {
				return 0
			}
			n, _ := strconv.ParseInt(string(words[0]), 10, 64) // 0 if it is not a number
			return n
		}
	}
	return 0
}
