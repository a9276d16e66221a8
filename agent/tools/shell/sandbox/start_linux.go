//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A started is the result of starting a command.
type started struct {
	pid int
	err error
}

// niceness is the nice value of commands.
const niceness = 5

// start starts the job's command and sends the outcome to result. It restricts its own thread only;
// the command inherits the restrictions, and the rest of the supervisor keeps its rights. The
// thread can't be used for anything else. start returns only after done is closed, because the
// command ends with this thread.
//
// The thread is never the main thread: Go keeps that for the goroutine that runs the init
// functions. /proc shows the restrictions of the main thread as those of the process, and
// EndOrphans recognises a supervisor by their absence.
func (j *job) start(
	tmp string, m *attributeServer, w *watch, result chan<- started, done <-chan struct{},
) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	var s started
	s.pid, s.err = j.launch(tmp, m, w)
	result <- s
	<-done
}

func (j *job) launch(tmp string, m *attributeServer, w *watch) (pid int, err error) {
	argv, dir, env := j.Argv, j.Dir, withEnv(j.Env, "TMPDIR="+tmp)
	files := []uintptr{0, 1, 2}
	switch j.Mode {
	case Bubblewrap:
		// bwrap would find the same programs, but its error message would confuse the model.
		if _, err := lookUp(argv[0], env); err != nil {
			return 0, err
		}
		wrapped, extra, err := j.wrap()
		if err != nil {
			return 0, err
		}
		for _, f := range extra {
			defer f.Close()
			files = append(files, f.Fd())
		}
		argv, dir, env = wrapped, "/", nil
	case Landlock:
		listener, err := j.confine(tmp)
		if err != nil {
			return 0, err
		}
		go m.serve(listener) // until the supervisor ends
	case None:
	default:
		return 0, fmt.Errorf("there is no mode %q", j.Mode)
	}
	// The gateway and the supervisor are more urgent than the command. A failure does not matter.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	path, err := lookUp(argv[0], env)
	if err != nil {
		return 0, err
	}
	undo := w.limitSelf()
	defer undo()
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", argv[0], err)
	}
	return pid, nil
}

// errNotFound reports that there is no program with the name.
var errNotFound = errors.New("there is no such program")

// lookUp searches for a program in the PATH of env and returns its path.
func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, entry := range env {
		list, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() &&
				unix.Access(path, unix.X_OK) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", name, errNotFound)
}
