package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gateway/agent/extract"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/tools/clock"
	"gateway/agent/tools/files"
	"gateway/agent/tools/image"
	"gateway/agent/tools/jobs"
	"gateway/agent/tools/mcp"
	"gateway/agent/tools/message"
	"gateway/agent/tools/shell"
	"gateway/agent/tools/shell/sandbox"
	"gateway/agent/tools/spawn"
	"gateway/bus"
	"gateway/channels/media"
	"gateway/cmd/gateway/internal/config"
	"gateway/memory"
	"gateway/store"
)

// toolset is what the agent works with: its tools, and what runs for them.
type toolset struct {
	cfg   *config.Config
	log   *slog.Logger
	tools *tool.Registry
	mcp   *mcp.Client
	roots []files.Root

	ready   chan struct{} // closed when it is known which commands can be run
	broken  chan struct{} // gets a value when the sandbox was found not to work any more
	proving sync.Mutex    // held while the sandbox is tested

	mu      sync.Mutex
	sandbox *sandbox.Sandbox // that has proven itself; nil if there is none, or not yet
	mode    string           // of the sandboxes that are looked for
	missing error            // why there is none
	shell   *shell.Shell     // nil until there was a sandbox
}

// A workplace is what tools work on.
type workplace struct {
	db        *store.DB
	inbox     *bus.Inbox
	outbox    *bus.Outbox
	workspace *os.Root
	mediaRoot *os.Root
	media     *media.Store
	knowledge *knowledge
	extract   *extract.Extractor
	stopTask  func(ctx context.Context, task bus.Session) (bool, error)
	secrets   func() // is called when the credentials of the tools have changed
}

// newToolset returns the toolset of the agent. Parts that must be tested first wait for
// [toolset.run].
func newToolset(cfg *config.Config, w workplace, log *slog.Logger) (*toolset, error) {
	h := &toolset{cfg: cfg, log: log, mode: cfg.Exec.Sandbox, ready: make(chan struct{}),
		broken: make(chan struct{}, 1)}
	list, err := webTools(cfg, newGuard(cfg), w.extract, log)
	if err != nil {
		return nil, err
	}
	if err := h.openRoots(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	reach := files.New(files.Options{Workspace: w.workspace, Path: cfg.Gateway.Workspace,
		Shared: w.knowledge.shared, Media: w.mediaRoot, Memory: w.knowledge.scopes,
		Extract: w.extract,
		Roots: append(h.roots, files.Root{Name: builtinName, Path: builtinFolder(cfg),
			Dir: w.knowledge.builtin})})
	list = append(append(list, reach.Tools()...), w.knowledge.tools()...)
	list = append(list, clock.New(time.Now, cfg.Gateway.Location), ask.New(),
		message.New(message.Options{DB: w.db, Outbox: w.outbox, Now: time.Now,
			Open: reach.Open, Put: w.media.Put}))
	if cfg.Media.Images.Model != "" {
		list = append(list, image.Tools(image.Options{Painter: newPainter(cfg, log),
			Client: newPictureGuard(cfg).Client(pictureTime),
			Price:  cfg.Media.Images.Price, Outbox: w.outbox, Now: time.Now, Open: reach.Open,
			Put: w.media.Put})...)
	}
	list = append(list, jobs.New(jobs.Options{DB: w.db, Store: JobStore(cfg), Now: time.Now}))
	list = append(list, spawn.Tools(spawn.Options{
		DB: w.db, Inbox: w.inbox, Now: time.Now, Stop: w.stopTask})...)
	if h.tools, err = tool.NewRegistry(list...); err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.mcp = newMCP(h, w)
	return h, nil
}

// pictureTime is how long a picture may take to be loaded.
const pictureTime = time.Minute

// openRoots opens the folders that the agent reaches besides its workspace.
func (h *toolset) openRoots() error {
	for _, name := range sortedKeys(h.cfg.Roots) {
		r := h.cfg.Roots[name]
		dir, err := os.OpenRoot(r.Path)
		if err != nil {
			return fmt.Errorf("[roots.%s]: %w; create the folder or remove the entry", name, err)
		}
		h.roots = append(h.roots,
			files.Root{Name: name, Path: r.Path, Dir: dir, Write: r.Write})
	}
	return nil
}

// close closes what newToolset has opened.
func (h *toolset) close() error {
	var errs []error
	for _, r := range h.roots {
		errs = append(errs, r.Dir.Close())
	}
	return errors.Join(errs...)
}

// run finds a sandbox, proves it again from time to time, and runs the servers of tools until ctx
// ends. When it returns, no process of its tools is left.
func (h *toolset) run(ctx context.Context) error {
	h.endOrphans() // of a process before this one
	h.prove(ctx)
	close(h.ready)
	var wg sync.WaitGroup
	wg.Go(func() { h.keepProving(ctx) })
	err := h.mcp.Run(ctx)
	<-ctx.Done() // without servers there was nothing to run
	wg.Wait()
	h.mu.Lock()
	s := h.shell
	h.mu.Unlock()
	if s != nil {
		s.Close()
	}
	h.endOrphans()
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// endOrphans ends what commands have left running whose supervisor has died.
func (h *toolset) endOrphans() {
	if n := sandbox.EndOrphans(); n > 0 {
		h.log.Warn("processes of commands ended whose supervisor had died", "count", n)
	}
}

// How soon a sandbox is looked for again while there is none, and proven again while there is one.
const (
	firstSeek = 5 * time.Second
	lastSeek  = 5 * time.Minute
	proveWait = 10 * time.Minute
)

// keepProving looks for a sandbox while there is none, for somebody may install it or let it work,
// and proves the one that there is. It does so also while the gateway is halted: that uses no tool,
// and what /readyz says must be right.
func (h *toolset) keepProving(ctx context.Context) {
	if h.cfg.Exec.Sandbox == "off" {
		return
	}
	for seek := firstSeek; ; {
		wait := seek
		if _, ok := h.sandboxState(); ok {
			seek, wait = firstSeek, compressed(proveWait)
		} else {
			seek = min(2*seek, lastSeek)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-h.broken:
			timer.Stop() // it is looked for again sooner than it was to be proven
			continue
		case <-timer.C:
		}
		h.endOrphans()
		h.prove(ctx)
	}
}

// sandboxState says in a few words how the sandbox is, and whether that is well.
func (h *toolset) sandboxState() (state string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.cfg.Exec.Sandbox == "off":
		return "switched off", true
	case h.missing != nil:
		return h.missing.Error(), false
	case h.sandbox == nil:
		return "being tested", false
	}
	return h.sandbox.String(), true
}

// prove looks for a sandbox that proves itself, and lets commands run if there is one. One that did
// before may fail once: a machine can be too busy for the test. After bubblewrap has proven itself
// nothing weaker is used until the gateway is started again: commands could make the machine so
// busy that its test fails.
func (h *toolset) prove(ctx context.Context) {
	h.proving.Lock()
	defer h.proving.Unlock()
	h.mu.Lock()
	before, missing, s, mode := h.sandbox, h.missing, h.shell, h.mode
	h.mu.Unlock()
	box, err := FindSandbox(ctx, mode)
	if before != nil && (err != nil || box.String() != before.String()) {
		box, err = FindSandbox(ctx, mode)
	}
	if err != nil && mode != h.cfg.Exec.Sandbox {
		err = fmt.Errorf("%w; a weaker one is used only after a restart of the gateway", err)
	}
	if ctx.Err() != nil || err == nil && box == nil {
		return // nobody wants to know, or none is wanted
	}
	if err == nil && s == nil {
		if s, err = h.openShell(); err != nil {
			h.log.ErrorContext(ctx, "commands are not offered", "err", err)
		}
	}
	h.mu.Lock()
	h.sandbox, h.missing, h.shell = box, err, s
	if box != nil && box.Name() == sandbox.Bubblewrap {
		h.mode = sandbox.Bubblewrap
	}
	h.mu.Unlock()
	switch {
	case err == nil && (before == nil || before.String() != box.String()):
		h.log.InfoContext(ctx, "sandbox found", "sandbox", box.String())
	case err != nil && before != nil:
		h.log.ErrorContext(ctx, "the sandbox does not work any more; commands are refused until "+
			"it does: see gateway doctor", "err", err)
	case err != nil && missing == nil:
		h.log.WarnContext(ctx, "commands are not offered: there is no sandbox", "err", err)
	}
}

// openShell offers the tools that run commands.
func (h *toolset) openShell() (*shell.Shell, error) {
	s := shell.New(h.shellOptions())
	if err := h.tools.Set("shell", s.Tools()); err != nil {
		return nil, err
	}
	return s, nil
}

// errNoSandbox tells the model why it can't run commands.
var errNoSandbox = errors.New("no command can be run at present, since the sandbox does not " +
	"work; the owner finds out why with gateway doctor. Do it without commands, or try again later")

// currentSandbox is that of [shell.Options].
func (h *toolset) currentSandbox() (*sandbox.Sandbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sandbox == nil {
		return nil, errNoSandbox
	}
	return h.sandbox, nil
}

// doubt is that of [shell.Options].
func (h *toolset) doubt(ctx context.Context) error {
	h.prove(ctx)
	_, err := h.currentSandbox()
	if err != nil {
		select {
		case h.broken <- struct{}{}:
		default: // one is enough
		}
	}
	return err
}

// FindSandbox returns a sandbox of a mode for commands, and nil if none are wanted.
func FindSandbox(ctx context.Context, mode string) (*sandbox.Sandbox, error) {
	if mode == "off" {
		return nil, nil
	}
	return sandbox.Find(ctx, sandbox.Options{Mode: mode})
}

// shellOptions returns what commands may do.
func (h *toolset) shellOptions() shell.Options {
	e := h.cfg.Exec
	o := shell.Options{
		Sandbox: h.currentSandbox, Doubt: h.doubt,
		Workspace: h.cfg.Gateway.Workspace, Network: e.Network, Env: e.Env,
		Limits: h.limits(), Processes: e.ProcessesTotal, MaxTimeout: e.Timeout,
		Media: func(a bus.Address) string {
			return filepath.Join(MediaFolder(h.cfg), filepath.FromSlash(a.Folder()))
		},
		Memory: func(s memory.Scope) string {
			return filepath.Join(MemoryFolder(h.cfg), string(s))
		},
		Shared:   SharedFolder(h.cfg),
		ReadOnly: []string{builtinFolder(h.cfg)},
	}
	for _, r := range h.roots {
		if r.Write {
			o.ReadWrite = append(o.ReadWrite, r.Path)
		} else {
			o.ReadOnly = append(o.ReadOnly, r.Path)
		}
	}
	return o
}

func (h *toolset) limits() sandbox.Limits {
	const mb = 1 << 20
	e := h.cfg.Exec
	return sandbox.Limits{Memory: int64(e.MemoryMB) * mb, Processes: e.Processes,
		KeepFree: int64(e.KeepFreeMB) * mb,
		Disk:     int64(e.DiskMB) * mb, FileSize: int64(e.DiskMB) * mb}
}

// Ready is closed when all tools are known.
func (h *toolset) Ready() <-chan struct{} { return h.ready }

// Stop ends what a session's tools have left running, as far as the writer of by may end it.
func (h *toolset) Stop(session bus.Session, by *bus.InboundMessage) {
	h.mu.Lock()
	s := h.shell
	h.mu.Unlock()
	if s != nil {
		s.Stop(session, by)
	}
}

// States describes the toolset for /status, a line each.
func (h *toolset) States() []string {
	h.mu.Lock()
	box, missing := h.sandbox, h.missing
	h.mu.Unlock()
	var lines []string
	switch {
	case h.cfg.Exec.Sandbox == "off":
		lines = append(lines, "Commands: switched off")
	case missing != nil:
		lines = append(lines, "Commands: not offered, because no sandbox works (see gateway doctor)")
	case box == nil:
		lines = append(lines, "Commands: the sandbox is being tested")
	default:
		lines = append(lines, "Commands: in the sandbox "+box.String())
	}
	for _, s := range h.mcp.States() {
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("MCP server %s: %s, %d tools, %s",
			s.Name, s.State, s.Tools, s.Error), ", "))
	}
	return lines
}
