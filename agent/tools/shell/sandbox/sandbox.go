// Package sandbox runs untrusted commands.
//
// [Find] picks a back-end that works on this machine: bubblewrap, or otherwise Landlock with
// seccomp. A self-test proves that it works: a probe within the sandbox must not get a file and a
// socket that it could use without the sandbox. [Sandbox.Command] prepares a command that runs
// confined.
//
// Each command has a supervisor, which is the same program started again with [Argument]. The
// supervisor runs while this package is initialised, so the main function need not call it. It
// confines the command and watches its resources. When the command or the gateway ends, in whatever
// way, it kills all processes of the command.
//
// In the sandbox, a command has the given folders, the system's programs for reading, a private
// temporary folder, and nothing else: no other files, processes or sockets, and no privileges. The
// Landlock back-end can't hide names and attributes of files outside. The package needs Linux; on
// other systems Find returns an error. It has no database tables. It owns the folders
// gateway-sandbox-* in the system's temporary folder.
package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Argument is the first argument of a program that is started as a supervisor.
const Argument = "__sandbox"

// The modes of [Options] and of [Sandbox.Name].
const (
	Auto       = "auto"       // the first of the next two that works
	Bubblewrap = "bubblewrap" // namespaces, by the program bwrap
	Landlock   = "landlock"   // Landlock rules, and a seccomp filter
	None       = "none"       // no confinement, only limits and supervision
)

// ErrUnavailable reports that no sandbox works on this system. Commands must not be run then.
var ErrUnavailable = errors.New("no sandbox works here")

// Options are the optional settings of [Find].
type Options struct {
	Mode       string // "" is [Auto]
	Self       string // path of this program; by default the running executable
	Bubblewrap string // path of bwrap; by default it is searched in PATH
}

// A Sandbox confines commands. It is safe for concurrent use.
type Sandbox struct {
	mode       string
	self       string
	bubblewrap string
	abi        int // newest version of Landlock to use
	report     Report
}

// Name returns the mode that was found: never [Auto].
func (s *Sandbox) Name() string { return s.mode }

// String returns the mode and how strong it is, for logs.
func (s *Sandbox) String() string {
	if s.mode == Landlock {
		return fmt.Sprintf("%s (version %d)", s.mode, s.abi)
	}
	return s.mode
}

// Report returns the result of the self-test.
func (s *Sandbox) Report() Report { return s.report }

// A Report describes a sandbox.
type Report struct {
	Mode   string
	Passed []string // properties that the self-test has proven
	Others []string // modes that were tried first, and why they don't work
	Weak   []string // accesses that this system can't restrict
}

// A Spec describes a command to run.
type Spec struct {
	Argv []string
	Dir  string   // absolute; by default the first of ReadWrite
	Env  []string // NAME=value, added to the small environment of every command

	// ReadOnly and ReadWrite are absolute paths that the command may access beside the system.
	// ReadWrite lists folders. No path of ReadOnly may be inside a folder of ReadWrite, because a
	// Landlock rule can't restrict part of a folder that another rule allows. To protect a file,
	// put it into a folder of ReadOnly; don't list the file itself. The kernel detaches the mount
	// of a single file when another file is renamed over it, as editors and the gateway do.
	ReadOnly, ReadWrite []string

	Network bool // allow the machine's network, with loopback; never UNIX sockets
	Limits  Limits
}

// Limits bound what all processes of a command use together, except where a field says that it is
// for one process. Zero means the default, a negative number means no limit.
type Limits struct {
	Memory    int64         // bytes, by default 2 GiB; also bounds each process
	Processes int           // with their threads, by default 1,024
	CPU       time.Duration // of one process; by default no limit
	FileSize  int64         // bytes of one file, by default 1 GiB
	Disk      int64         // approximate bytes of written files, by default 4 GiB
	Files     int           // approximate number of written files, by default 200,000
	KeepFree  int64         // approximate bytes that must stay free on the disks; no limit
	OpenFiles int           // of one process, by default 1,024
	Temporary int64         // bytes of the temporary folder, 256 MiB; Landlock: in Disk
}

func (l Limits) withDefaults() Limits {
	l.Memory = cmp.Or(l.Memory, 2<<30)
	l.Processes = cmp.Or(l.Processes, 1024)
	l.CPU = cmp.Or(l.CPU, -1)
	l.FileSize = cmp.Or(l.FileSize, 1<<30)
	l.Disk = cmp.Or(l.Disk, 4<<30)
	l.Files = cmp.Or(l.Files, 200_000)
	l.KeepFree = cmp.Or(l.KeepFree, -1)
	l.OpenFiles = cmp.Or(l.OpenFiles, 1024)
	l.Temporary = cmp.Or(l.Temporary, 256<<20)
	return l
}

// The names of limits in [Outcome.Limit].
const (
	LimitMemory    = "memory"
	LimitProcesses = "processes"
	LimitCPU       = "processor time"
	LimitFileSize  = "file size"
	LimitDisk      = "disk space"
	LimitFiles     = "number of files"
	LimitFree      = "free disk space"
)

// An Outcome describes how a command ended.
type Outcome struct {
	Exit   int    // exit code; 128 + Signal after a signal
	Signal int    // 0: none
	Limit  string // the limit that ended it, or ""
	Err    string // why it could not be started, or ""
}

// A Command is a prepared command. Call Start and Wait and keep a reference until Wait has
// returned. Without a reference, or when its context is done, the command ends with all of its
// processes.
type Command struct {
	*exec.Cmd

	report *os.File // first holds the job, then the outcome
	held   *os.File // the supervisor's end of life
	life   *os.File // the supervisor ends when this is closed
}

// Close releases the command's resources. It ends the command if it still runs.
func (c *Command) Close() error {
	return errors.Join(c.life.Close(), c.held.Close(), c.report.Close())
}

// A job is the supervisor's input.
type job struct {
	Spec
	Mode       string
	Bubblewrap string
	ABI        int
	Parent     int // process ID of the gateway
}

// check returns an error if no back-end could run the command.
func (s *Spec) check() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return errors.New("sandbox: command: it is empty")
	}
	for _, text := range append(append([]string{s.Dir}, s.Argv...), s.Env...) {
		if strings.ContainsRune(text, 0) {
			return errors.New("sandbox: command: it contains a zero byte")
		}
	}
	for _, path := range append(append([]string{}, s.ReadOnly...), s.ReadWrite...) {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			return fmt.Errorf("sandbox: command: want an absolute path, not %q", path)
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("sandbox: command: %w", err)
		}
	}
	for _, folder := range s.ReadWrite {
		for _, path := range s.ReadOnly {
			if within(path, folder) {
				return fmt.Errorf("sandbox: command: %s can't be read-only within %s", path, folder)
			}
		}
	}
	return nil
}

// within reports whether path is folder or is inside it. It compares names only.
func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
