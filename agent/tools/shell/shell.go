// Package shell implements the tools that run commands: "exec", "exec_input" and "exec_list".
//
// A [Shell] confines commands with a [sandbox.Sandbox] and refuses to run them without one. [Argv]
// turns a command line into an argument vector once, so that people see and approve exactly the
// command that runs. Output is text for the model, at most 10,000 characters.
//
// A background command belongs to a session and to the person who started it. It outlives the turn
// and ends with the gateway; it is kept in memory only. Everybody in the conversation may see its
// output. The person who started it, admins and owners may write to it or end it, but nobody with a
// lesser role than that person.
//
// A command may read the documents of its scope. It may change everything in the workspace except
// the files that are part of every prompt; only admins may change those. Landlock can't enforce
// this, and the sandbox's report says so. The shell creates missing files of this kind empty. The
// package has no database tables.
package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/memory"
)

// Options configure a [Shell].
type Options struct {
	// Sandbox returns the sandbox for the next command. Its error tells the model why there is none
	// at present. It is called concurrently.
	Sandbox   func() (*sandbox.Sandbox, error)
	Workspace string // absolute; commands run in it and may change it

	// Doubt is called if the sandbox itself seems to have prevented a command from starting. It
	// tests whether the sandbox works. If it does not, the error tells the model why. Doubt is
	// called concurrently and may be nil.
	Doubt func(ctx context.Context) error

	// Media returns the folder with the files that were sent to a conversation. Commands of the
	// conversation may read it and find its path in $MEDIA. Media may be nil, and the folder may
	// not exist.
	Media func(bus.Address) string

	// Memory returns the folder with the documents of a scope. Commands of the scope may read it
	// and find its path in $MEMORY. Memory may be nil, and the folder may not exist.
	Memory func(memory.Scope) string

	// Shared is the folder with the documents, and in "skills" the skills, that are part of every
	// prompt. Commands may read it and find its path in $SHARED. It may be "".
	Shared string

	ReadOnly, ReadWrite []string // absolute paths that commands may also access
	Network             bool
	Env                 []string       // variables passed on; by default none
	Limits              sandbox.Limits // of each command; processor time is an hour by default

	// Processes bounds the number of processes and threads of all commands together. Each command
	// counts with its own limit. It waits up to 20 s until that many are free, and is refused after
	// that. By default there is no bound.
	Processes  int
	MaxTimeout time.Duration // of a command in the foreground; by default 10 minutes
}

// Limits of background commands.
const (
	maxRunning = 8  // per session
	maxAll     = 64 // of all sessions
	maxEnded   = 8  // ended commands that are remembered, per session
	keepEnded  = time.Hour
)

// A Shell runs commands. It is safe for concurrent use.
type Shell struct {
	opts      Options
	earlyWait time.Duration       // how long exec waits for a background command to end
	room      *semaphore.Weighted // for the processes of all commands; nil: no bound
	wait      time.Duration       // how long a command waits for room
	limit     limiter             // ends a command in the foreground at its timeout

	background processes
	writable   writable
}

// A limiter is [context.WithTimeout], or a test's stand-in.
type limiter func(context.Context, time.Duration) (context.Context, context.CancelFunc)

// New returns a Shell. The caller must close it.
func New(o Options) *Shell {
	o.MaxTimeout = cmp.Or(o.MaxTimeout, 10*time.Minute)
	o.Limits.CPU = cmp.Or(o.Limits.CPU, time.Hour)
	if o.Doubt == nil {
		o.Doubt = func(context.Context) error { return nil }
	}
	s := &Shell{opts: o, earlyWait: earlyEnd, wait: roomTime, limit: context.WithTimeout,
		background: processes{byID: make(map[string]*process)},
		writable:   append(writable{o.Workspace}, o.ReadWrite...)}
	if o.Processes > 0 && o.Limits.Processes > 0 {
		s.room = semaphore.NewWeighted(int64(max(o.Processes, o.Limits.Processes)))
	}
	return s
}

// roomTime is how long a command waits until Options.Processes leaves room for it.
const roomTime = 20 * time.Second

// reserve reserves room for a command's processes. The caller must call release.
func (s *Shell) reserve(ctx context.Context) (release func(), err error) {
	if s.room == nil {
		return func() {}, nil
	}
	n := int64(s.opts.Limits.Processes)
	wait, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if s.room.Acquire(wait, n) == nil {
		return sync.OnceFunc(func() { s.room.Release(n) }), nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, errors.New("the commands of all conversations use as many processes as they may " +
		"have together; end one that runs in the background, or try again later")
}

// Tools returns the tools.
func (s *Shell) Tools() []tool.Tool {
	exec := tool.New("exec", execDescription, tool.Once, s.exec)
	exec.Argv = func(c tool.Call) []string { return argv(c.Args) }
	exec.Operands = s.operands
	exec.Aliases = map[string]string{"working_dir": "dir"} // nanobot's name
	exec.Timeout = s.opts.MaxTimeout + roomTime + 15*time.Second
	input := tool.New("exec_input", inputDescription, tool.Once, s.input)
	input.Timeout = maxWait + 15*time.Second
	input.Argv, input.Operands, input.Like = s.receiver, s.inputOperands, "exec"
	input.Rare = `shows the output of a background command, {"id":"…"}; writes to it, ends it`
	list := tool.New("exec_list", listDescription, tool.Pure, s.list)
	list.Rare = "lists background commands, {}"
	tools := []tool.Tool{exec, input, list}
	for i := range tools {
		tools[i].MinRole = bus.User // guests can't run commands
	}
	return tools
}

// Stop ends the background commands of a session and of the sessions below it: those that the
// sender of m may end, or all of them if m is nil. It waits until they have ended and returns their
// number.
func (s *Shell) Stop(key bus.Session, m *bus.InboundMessage) int {
	return s.background.end(func(p *process) bool {
		own := p.session == key || p.session.IsDescendantOf(key)
		return own && (m == nil || p.owner.mayBeControlledBy(owner{m.From.Account, m.Sender.ID, m.Person,
			m.Role}))
	})
}

// Close ends all background commands and waits for them. After that, no command can be started.
func (s *Shell) Close() { s.background.close() }

// folder returns the absolute path of a folder in the workspace.
func (s *Shell) folder(name string) (string, error) {
	rel := filepath.Clean(name) // "." for ""
	if filepath.IsAbs(rel) {
		var err error
		if rel, err = filepath.Rel(s.opts.Workspace, rel); err != nil {
			rel = ".."
		}
	}
	if !filepath.IsLocal(rel) {
		return "", fmt.Errorf("dir %q is outside the workspace; want a folder in %s", name,
			s.opts.Workspace)
	}
	root, err := os.OpenRoot(s.opts.Workspace)
	if err != nil {
		return "", errors.New("the workspace can't be opened; the owner must look at it")
	}
	defer root.Close()
	if info, err := root.Stat(rel); err != nil || !info.IsDir() {
		return "", fmt.Errorf("there is no folder %q in the workspace; list_dir shows what there is",
			name)
	}
	return filepath.Join(s.opts.Workspace, rel), nil
}

// show lets a command read a folder, if it exists, and puts its path into the environment variable
// name. The folder must not be a link, because a link could lead to another scope's folder.
func show(spec *sandbox.Spec, name, folder string) {
	if info, err := os.Lstat(folder); folder != "" && err == nil && info.IsDir() {
		spec.ReadOnly = append(spec.ReadOnly, folder)
		spec.Env = append(spec.Env, name+"="+folder)
	}
}

// skillsFolder is the folder of the shared skills in [Options].Shared.
const skillsFolder = "skills"

// isWhole reports whether no folder of withheld skills is in the folder that tools call name.
func isWhole(withheld []string, name string) bool {
	return !slices.ContainsFunc(withheld, func(folder string) bool {
		return strings.HasPrefix(folder, name+"/")
	})
}

// without returns the paths that a command may read below a path that tools call name: the path
// itself, or the folders in it that are not withheld.
func without(withheld []string, path, name string) (list []string) {
	if isWhole(withheld, name) {
		return []string{path}
	}
	entries, _ := os.ReadDir(path) // nothing to see otherwise
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(withheld, name+"/"+e.Name()) {
			list = append(list, filepath.Join(path, e.Name()))
		}
	}
	return list
}

// command prepares a command in the conversation of a call.
func (s *Shell) command(
	ctx context.Context, c tool.Call, argv []string, dir string,
) (*sandbox.Command, error) {
	box, err := s.opts.Sandbox()
	if err != nil {
		return nil, err
	}
	if dir, err = s.folder(dir); err != nil {
		return nil, err
	}
	spec := sandbox.Spec{
		Argv: argv, Dir: dir, Network: s.opts.Network, Limits: s.opts.Limits,
		ReadWrite: append([]string{s.opts.Workspace}, s.opts.ReadWrite...),
	}
	for _, path := range s.opts.ReadOnly {
		spec.ReadOnly = append(spec.ReadOnly, without(c.Limits.Folders, path, filepath.Base(path))...)
	}
	for _, name := range s.opts.Env {
		if value, ok := os.LookupEnv(name); ok {
			spec.Env = append(spec.Env, name+"="+value)
		}
	}
	if shared := filepath.Join(s.opts.Shared, skillsFolder); s.opts.Shared == "" ||
		isWhole(c.Limits.Folders, skillsFolder) {
		show(&spec, "SHARED", s.opts.Shared)
	} else {
		spec.ReadOnly = append(spec.ReadOnly, without(c.Limits.Folders, shared, skillsFolder)...)
		spec.Env = append(spec.Env, "SHARED="+s.opts.Shared)
	}
	if s.opts.Media != nil {
		show(&spec, "MEDIA", s.opts.Media(c.Address))
	}
	if s.opts.Memory != nil && c.Scope != "" {
		show(&spec, "MEMORY", s.opts.Memory(c.Scope))
	}
	cmd, err := box.Command(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("the command can't be run: %w", err)
	}
	return cmd, nil
}
