// Package shell has the tools that run commands: "exec", "exec_input" and "exec_list".
//
// A [Shell] runs them confined by a [sandbox.Sandbox], without which it refuses them. A command is
// turned into the words that run once, by [Argv], so that what is shown and approved is what runs.
// Output is text for the model, 10,000 characters of it at most. Commands in the background belong
// to a session and to the person who started them, outlive its turns and end with the gateway: they
// are kept in memory only. Everybody in the conversation may look at them; who has started one,
// admins and owners may give it input or end it, but nobody with a lesser role than it has.
//
// A command may read the documents of its own scope, and of the workspace it may change all but
// what everybody's prompt is made of: that is for admins. With Landlock that can't be kept, and the
// sandbox's report says so. Missing files are made, empty. The package owns no
// tables.
package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"gateway/agent/tool"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/memory"
)

// Options say what commands may do.
type Options struct {
	// Sandbox returns the one for the next command, or why there is none at present, in words for
	// the model. It is called concurrently.
	Sandbox   func() (*sandbox.Sandbox, error)
	Workspace string // absolute; commands run in it and may change it

	// Doubt is called, concurrently, if it looks as if the sandbox itself had kept a command from
	// being started. It finds out whether the sandbox works, and returns why no command can be run
	// if it doesn't, in words for the model. It may be nil.
	Doubt func(ctx context.Context) error

	// Media returns the folder of the files that were sent to a conversation, which its commands
	// may read and find in $MEDIA. It may be nil, and what it names may not exist.
	Media func(bus.Address) string

	// Memory returns the folder of a scope's documents, which its commands may read and find in
	// $MEMORY. It may be nil, and what it names may not exist.
	Memory func(memory.Scope) string

	// Shared is the folder of what everybody's prompt is made of, documents and, in "skills", skills.
	// Commands may read it and find it in $SHARED. It may be "".
	Shared string

	ReadOnly, ReadWrite []string // absolute paths of what else they may reach
	Network             bool
	Env                 []string       // names of our environment that they may see; by default none
	Limits              sandbox.Limits // of each command; processor time is an hour by default

	// Processes bounds how many processes all commands together may have, with their threads. A
	// command counts as many as its limit lets it have: it waits for room, and is refused if there
	// is none in a while. By default there is no bound.
	Processes  int
	MaxTimeout time.Duration // of one in the foreground; by default 10 minutes
}

// The bounds of commands in the background.
const (
	maxRunning = 8  // per session
	maxAll     = 64 // of all sessions
	maxEnded   = 8  // that are remembered, per session
	keepEnded  = time.Hour
)

// A Shell runs commands. It is safe for concurrent use.
type Shell struct {
	o     Options
	early time.Duration       // how long a command in the background is waited for
	room  *semaphore.Weighted // for processes of all commands; nil: no bound
	wait  time.Duration       // for room
	wg    sync.WaitGroup      // of commands in the background

	mu        sync.Mutex
	closed    bool
	last      int                 // number of the last process
	processes map[string]*process // by ID
}

// New returns a Shell. Whoever makes it closes it.
func New(o Options) *Shell {
	o.MaxTimeout = cmp.Or(o.MaxTimeout, 10*time.Minute)
	o.Limits.CPU = cmp.Or(o.Limits.CPU, time.Hour)
	s := &Shell{o: o, early: earlyEnd, wait: roomTime, processes: make(map[string]*process)}
	if o.Processes > 0 && o.Limits.Processes > 0 {
		s.room = semaphore.NewWeighted(int64(max(o.Processes, o.Limits.Processes)))
	}
	return s
}

// roomTime is how long a command waits for room.
const roomTime = 20 * time.Second

// takeRoom takes the room for a command's processes, and returns what gives it back.
func (s *Shell) takeRoom(ctx context.Context) (release func(), err error) {
	if s.room == nil {
		return func() {}, nil
	}
	n := int64(s.o.Limits.Processes)
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
	exec.Argv = func(c tool.Call) []string { return Argv(c.Args) }
	exec.Operands = s.operands
	exec.Timeout = s.o.MaxTimeout + roomTime + 15*time.Second
	input := tool.New("exec_input", inputDescription, tool.Once, s.input)
	input.Timeout = maxWait + 15*time.Second
	input.Argv, input.Operands, input.Like = s.receiver, s.typed, "exec"
	input.Rare = `shows the output of a background command, {"id":"…"}; writes to it, ends it`
	list := tool.New("exec_list", listDescription, tool.Pure, s.list)
	list.Rare = "lists background commands, {}"
	tools := []tool.Tool{exec, input, list}
	for i := range tools {
		tools[i].Least = bus.User // guests have no hands
	}
	return tools
}

// Stop ends the commands in the background of a session and of the sessions below it: those that
// the writer of m may end, or all if m is nil. It returns when they have ended, and how many there
// were.
func (s *Shell) Stop(key bus.Session, m *bus.InboundMessage) int {
	return s.end(func(p *process) bool {
		own := p.session == key || p.session.Below(key)
		return own && (m == nil || p.owner.yields(owner{m.From.Account, m.Sender.ID, m.Person, m.Role}))
	})
}

// Close ends all commands in the background and waits for them. None can be started any more.
func (s *Shell) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(func(*process) bool { return true })
	s.wg.Wait()
}

func (s *Shell) end(which func(*process) bool) (n int) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.processes))
	s.mu.Unlock()
	var ending []*process
	for _, p := range all {
		if which(p) && p.running() {
			p.cancel()
			ending = append(ending, p)
		}
	}
	for _, p := range ending {
		<-p.done
	}
	return len(ending)
}

// folder returns the absolute path of a folder of the workspace.
func (s *Shell) folder(name string) (string, error) {
	rel := filepath.Clean(name) // "." for ""
	if filepath.IsAbs(rel) {
		var err error
		if rel, err = filepath.Rel(s.o.Workspace, rel); err != nil {
			rel = ".."
		}
	}
	if !filepath.IsLocal(rel) {
		return "", fmt.Errorf("dir %q is outside the workspace; want a folder in %s", name,
			s.o.Workspace)
	}
	root, err := os.OpenRoot(s.o.Workspace)
	if err != nil {
		return "", errors.New("the workspace can't be opened; the owner must look at it")
	}
	defer root.Close()
	if info, err := root.Stat(rel); err != nil || !info.IsDir() {
		return "", fmt.Errorf("there is no folder %q in the workspace; list_dir shows what there is",
			name)
	}
	return filepath.Join(s.o.Workspace, rel), nil
}

// show lets a command read a folder, if it is there, and find it by a name. No link is followed:
// it could lead to a folder of somebody else.
func show(spec *sandbox.Spec, name, folder string) {
	if info, err := os.Lstat(folder); folder != "" && err == nil && info.IsDir() {
		spec.ReadOnly = append(spec.ReadOnly, folder)
		spec.Env = append(spec.Env, name+"="+folder)
	}
}

// command prepares a command for the conversation of a call.
func (s *Shell) command(
	ctx context.Context, c tool.Call, argv []string, dir string,
) (*sandbox.Command, error) {
	box, err := s.o.Sandbox()
	if err != nil {
		return nil, err
	}
	if dir, err = s.folder(dir); err != nil {
		return nil, err
	}
	spec := sandbox.Spec{
		Argv: argv, Dir: dir, Network: s.o.Network, Limits: s.o.Limits,
		ReadOnly:  slices.Clone(s.o.ReadOnly),
		ReadWrite: append([]string{s.o.Workspace}, s.o.ReadWrite...),
	}
	for _, name := range s.o.Env {
		if value, ok := os.LookupEnv(name); ok {
			spec.Env = append(spec.Env, name+"="+value)
		}
	}
	show(&spec, "SHARED", s.o.Shared)
	if s.o.Media != nil {
		show(&spec, "MEDIA", s.o.Media(c.Address))
	}
	if s.o.Memory != nil && c.Scope != "" {
		show(&spec, "MEMORY", s.o.Memory(c.Scope))
	}
	cmd, err := box.Command(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("the command can't be run: %w", err)
	}
	return cmd, nil
}
