//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit codes of the supervisor itself.
const (
	exitUsage   = 2
	exitTrouble = 125 // the command could not be confined or started
)

// grace is how long a command may run after it was asked to end.
const grace = 2 * time.Second

// A program that is started as a supervisor or as a probe ends here, before its main function
// begins. Go initialises packages in the order of their import paths, each as soon as all packages
// that it imports are initialised. Most of the others come after this one. Commands don't need
// them, and without them a supervisor starts in 9 ms instead of 17.
func init() {
	if len(os.Args) < 2 || os.Args[1] != Argument {
		return
	}
	switch args := os.Args[2:]; {
	case len(args) == 1 && args[0] == "run":
		os.Exit(supervise())
	case len(args) == 2 && args[0] == "probe":
		os.Exit(probe(args[1]))
	}
	fmt.Fprintln(os.Stderr, "gateway: "+Argument+" is for the gateway's own use")
	os.Exit(exitUsage)
}

// supervise runs one job. When it returns, all processes of the job have ended.
func supervise() int {
	// The command must not inherit the supervisor's files.
	if err := unix.CloseRange(reportFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		fmt.Fprintln(os.Stderr, "gateway: sandbox:", err)
		return exitTrouble
	}
	report := os.NewFile(reportFD, "job")
	o := superviseJob(report, os.NewFile(lifeFD, "life"))
	text, err := json.Marshal(o)
	if err == nil {
		cut := report.Truncate(0)
		_, err = report.WriteAt([]byte(outcomeMark+"\n"+string(text)), 0)
		err = errors.Join(cut, err)
	}
	if err != nil || o.Err != "" {
		if o.Err != "" { // nobody reads the report of an MCP server, only its last output
			fmt.Fprintln(os.Stderr, "gateway: sandbox:", o.Err)
		}
		return exitTrouble
	}
	return o.Exit
}

// superviseJob runs the job in the report file.
func superviseJob(report, life *os.File) Outcome {
	var j job
	text, err := io.ReadAll(io.NewSectionReader(report, 0, 1<<30))
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		return Outcome{Err: fmt.Sprintf("job: %v", err)}
	}
	ended := make(chan struct{})
	go func() { // until the process ends
		_, _ = io.Copy(io.Discard, life) // nothing is ever written; only the end matters
		close(ended)
	}()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)

	// Orphaned descendants become children of the supervisor, so that none escapes.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return Outcome{Err: fmt.Sprintf("subreaper: %v", err)}
	}
	tmp, err := os.MkdirTemp("", "gateway-sandbox-")
	if err != nil {
		return Outcome{Err: fmt.Sprintf("temporary folder: %v", err)}
	}
	defer removeAll(tmp)
	return j.run(tmp, ended, asked)
}

// run starts the job's command and waits until the command and all of its descendants have ended.
func (j *job) run(tmp string, ended <-chan struct{}, asked <-chan os.Signal) Outcome {
	// The watch must get processor time even if a command starts a thousand processes. Only
	// privileged processes may do this; a failure does not matter.
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, -20)
	w := newWatch(j, tmp)
	m := newAttributeServer(j, tmp)
	result, done := make(chan started), make(chan struct{})
	defer close(done)
	undo := preferOOMKill()
	go j.start(tmp, m, w, result, done)
	s := <-result
	undo()
	if s.err != nil {
		return Outcome{Err: s.err.Error()}
	}
	w.limit(s.pid)
	closeStandardFiles()
	exits, empty := make(chan unix.WaitStatus, 1), make(chan struct{})
	go reap(s.pid, exits, empty)

	o := Outcome{Exit: -1}
	hits := make(chan string, 1)
	go w.run(hits) // until the supervisor ends
	var late <-chan time.Time
	for {
		select {
		case status := <-exits:
			select {
			case o.Limit = <-hits: // the reason for the end
			default:
			}
			o.set(status)
			endAll(empty)
			return o
		case <-asked:
			j.ask(s.pid)
			late = time.After(grace)
			continue
		case <-ended:
		case <-late:
		case o.Limit = <-hits:
		}
		endAll(empty)
		o.set(<-exits)
		return o
	}
}

// set records the exit status of the command.
func (o *Outcome) set(status unix.WaitStatus) {
	o.Exit = status.ExitStatus()
	if status.Signaled() {
		o.Signal = int(status.Signal())
		o.Exit = 128 + o.Signal
	}
	if o.Limit != "" {
		return
	}
	switch o.Exit { // shells and bwrap report a child's signal like this
	case 128 + int(unix.SIGXCPU):
		o.Limit = LimitCPU
	case 128 + int(unix.SIGXFSZ):
		o.Limit = LimitFileSize
	}
}

// ask sends SIGTERM to the command. bwrap does not forward signals.
func (j *job) ask(pid int) {
	for _, p := range descendants(os.Getpid()) {
		if j.Mode != Bubblewrap || p != pid {
			_ = unix.Kill(p, unix.SIGTERM) // it may have ended
		}
	}
}

// reap waits for all descendants of this process. It sends the exit status of main, and closes
// empty when no process is left.
func reap(main int, exits chan<- unix.WaitStatus, empty chan<- struct{}) {
	defer close(empty)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // there are no more children
		}
		if pid == main && (status.Exited() || status.Signaled()) {
			exits <- status
		}
	}
}

// endAll kills all descendants of this process until none is left.
func endAll(empty <-chan struct{}) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-empty:
			return
		case <-again.C:
			killBelow()
			again.Reset(time.Millisecond)
		}
	}
}

// closeStandardFiles replaces the supervisor's three standard files by /dev/null. Otherwise they
// would stay open, and readers of the command's output and writers to its input would not see its
// end.
func closeStandardFiles() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the files stay open until the end
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, unix.O_CLOEXEC) // the file stays open until the end
	}
	_ = unix.Close(null) // nothing was written
}

// preferOOMKill makes new child processes the first victims of the kernel's OOM killer, until undo
// is called.
func preferOOMKill() (undo func()) {
	const file = "/proc/self/oom_score_adj"
	old, err := os.ReadFile(file)
	if err != nil {
		return func() {}
	}
	// Neither failure matters.
	_ = os.WriteFile(file, []byte(strconv.Itoa(markOOM)), 0)
	return func() { _ = os.WriteFile(file, old, 0) }
}

// removeAll removes a folder that a command could change in any way.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	// Even its owner can't enter a folder without permissions. The command has ended, so nobody
	// changes them any more.
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = syscall.Chmod(path, 0o700) // if this fails, RemoveAll fails
		}
		return nil
	})
	_ = os.RemoveAll(dir) // the rest stays: there is nobody to tell
}
