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

// A started command is what the supervisor looks after.
type started struct {
	pid int
	err error
}

// niceness is the priority of commands.
const niceness = 5

// start starts the job's command and reports to result. It restricts its own thread, from which
// the command inherits the restrictions while the rest of the supervisor stays as it is. So the
// thread is of no more use: start returns only when done is closed, since the command would
// end with the thread.
func (j *job) start(
	tmp string, m *attributeServer, w *watch, result chan<- started, done <-chan struct{},
) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if unix.Gettid() == unix.Getpid() {
		// /proc shows the main thread's restrictions as those of the process, and EndOrphans knows a
		// supervisor by having none. While this goroutine waits, no other one runs on that thread.
		go j.start(tmp, m, w, result, done)
		<-done
		return
	}
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
		// It has the same system inside, and bwrap's own words are not for the model.
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
		go m.serve(listener) // ends with the supervisor
	case None:
	default:
		return 0, fmt.Errorf("there is no mode %q", j.Mode)
	}
	// The command is less urgent than the gateway, and than its supervisor. Best effort.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	path, err := lookUp(argv[0], env)
	if err != nil {
		return 0, err
	}
	takeOff := w.lend()
	defer takeOff()
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", argv[0], err)
	}
	return pid, nil
}

// errNotFound reports that no program has the name.
var errNotFound = errors.New("there is no such program")

// lookUp returns the path of a program by the PATH of env.
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
