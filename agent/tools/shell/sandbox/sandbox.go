// Package sandbox runs commands that nobody has to trust.
//
// [Find] picks a back-end that works on this machine, bubblewrap or else Landlock with seccomp, and
// proves it by a self-test: a probe within the sandbox must be refused a file and a socket that it
// could otherwise have. [Sandbox.Command] prepares a command that runs confined.
//
// Each command has a supervisor, which is the program itself started again: main must hand over to
// [Main] when its first argument is [Argument]. The supervisor confines the command, watches what
// it uses, and ends all of its processes when the command ends or the program does, however.
//
// Within the sandbox there are the folders given, the system's programs to read, a private
// temporary folder, no other files, processes or sockets, and no privileges. What the Landlock
// back-end can't hide are names and attributes of files outside. It needs Linux; elsewhere Find
// says that there is no sandbox. The package owns no tables; folders named gateway-sandbox-* in the
// system's temporary folder are its own.
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

// Argument is the first argument of the program when it is started as a supervisor.
const Argument = "__sandbox"

// The modes.
const (
	Auto       = "auto"       // the first of the next two that works
	Bubblewrap = "bubblewrap" // namespaces, by the program bwrap
	Landlock   = "landlock"   // rules of the kernel, and system calls that are refused
	None       = "none"       // no confinement, only limits and an end
)

// ErrUnavailable reports that no sandbox works here, so that no command must be run.
var ErrUnavailable = errors.New("no sandbox works here")

// Options are what [Find] can be told. The zero value is the usual.
type Options struct {
	Mode       string // "" is [Auto]
	Self       string // path of this program; by default the file that runs
	Bubblewrap string // path of bwrap; by default it is looked for in PATH
}

// A Sandbox confines commands. It is safe for concurrent use.
type Sandbox struct {
	mode       string
	self       string
	bubblewrap string
	abi        int // of Landlock, that is used at most
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

// Report returns what the self-test found.
func (s *Sandbox) Report() Report { return s.report }

// A Report says what is known of a sandbox.
type Report struct {
	Mode   string
	Passed []string // what the self-test has proven, in words
	Others []string // modes that were tried before and why they don't work
	Weak   []string // what this system can't restrict
}

// A Spec is a command to run.
type Spec struct {
	Argv []string
	Dir  string   // absolute; by default the first of ReadWrite
	Env  []string // NAME=value, beside a small environment that every command has

	// ReadOnly and ReadWrite are absolute paths of what the command may reach beside the system. None
	// of ReadOnly may lie within one of ReadWrite, which are folders: a rule of Landlock can't take
	// back within a folder what another allows for the whole. What must stay as it is belongs into a
	// folder of ReadOnly and is not a file of its own there: the kernel detaches the mount of a
	// single file when another file is renamed over it, as editors and the gateway do.
	ReadOnly, ReadWrite []string

	Network bool // the machine's network, loopback too; never UNIX sockets
	Limits  Limits
}

// Limits bound what all processes of a command use together, unless they say otherwise. A zero
// means the default and a negative number no limit.
type Limits struct {
	Memory    int64         // bytes, 2 GiB; one process can also allocate no more
	Processes int           // with their threads, 1,024
	CPU       time.Duration // of one process; no limit
	FileSize  int64         // bytes of one file, 1 GiB
	Disk      int64         // bytes of the files written, about, 4 GiB
	Files     int           // files written, about, 200,000
	KeepFree  int64         // bytes to leave free on the file systems of ReadWrite, about; no limit
	OpenFiles int           // of one process, 1,024
	Temporary int64         // bytes of the temporary folder, 256 MiB; with Landlock it is in Disk
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

// The limits as an [Outcome] names them.
const (
	LimitMemory    = "memory"
	LimitProcesses = "processes"
	LimitCPU       = "processor time"
	LimitFileSize  = "file size"
	LimitDisk      = "disk space"
	LimitFiles     = "number of files"
	LimitFree      = "free disk space"
)

// An Outcome is how a command ended.
type Outcome struct {
	Exit   int    // exit code, 128 + Signal if a signal ended it
	Signal int    // 0: none
	Limit  string // the limit that ended it, or ""
	Err    string // why it could not be started, or ""
}

// A Command is a command that is prepared to run. Whoever starts it also waits for it and keeps it
// until then: to drop it, or to end its context, ends the command with all of its processes.
type Command struct {
	*exec.Cmd

	report *os.File // in: the job, out: the outcome
	life   *os.File // the supervisor ends when it is closed
}

// Close frees what the command holds. It ends the command if it still runs.
func (c *Command) Close() error { return errors.Join(c.life.Close(), c.report.Close()) }

// A job is what the supervisor is told.
type job struct {
	Mode       string
	Argv       []string
	Dir        string
	Env        []string
	ReadOnly   []string
	ReadWrite  []string
	Network    bool
	Limits     Limits
	Bubblewrap string
	ABI        int
	Parent     int // process ID of the gateway
}

// check refuses what no back-end could do.
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

// within reports whether path is folder or lies in it, by name.
func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
