package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gateway/agent/extract"
	"gateway/agent/guard"
	"gateway/agent/llm/openai"
	"gateway/agent/tool"
	"gateway/agent/tools/ask"
	"gateway/agent/tools/clock"
	"gateway/agent/tools/files"
	"gateway/agent/tools/image"
	"gateway/agent/tools/jobs"
	"gateway/agent/tools/mcp"
	"gateway/agent/tools/message"
	"gateway/agent/tools/recall"
	"gateway/agent/tools/shell"
	"gateway/agent/tools/shell/sandbox"
	"gateway/agent/tools/spawn"
	"gateway/agent/tools/web"
	"gateway/bus"
	"gateway/channels/media"
	"gateway/cmd/gateway/internal/config"
	"gateway/memory"
	"gateway/store"
)

// toolset has the agent's tools and the processes that serve them.
type toolset struct {
	cfg   *config.Config
	log   *slog.Logger
	tools *tool.Registry
	mcp   *mcp.Client
	roots []files.Root

	ready    chan struct{} // closed after the first test of the sandbox
	broken   bus.Signal    // when the sandbox has stopped working
	testLock sync.Mutex    // held while the sandbox is tested

	mu    sync.Mutex
	state sandboxState
}

// A sandboxState is what a toolset knows about the sandbox.
type sandboxState struct {
	box     *sandbox.Sandbox // passed its test; nil if none did
	mode    string           // accepted sandboxes
	missing error            // why box is nil
	shell   *shell.Shell     // nil until a sandbox was found
}

// now returns the present state of the sandbox.
func (h *toolset) now() sandboxState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// toolDeps are the dependencies of the tools.
type toolDeps struct {
	db        *store.DB
	inbox     *bus.Inbox
	outbox    *bus.Outbox
	workspace *os.Root
	mediaRoot *os.Root
	media     *media.Store
	knowledge *knowledge
	extract   *extract.Extractor
	stopTask  func(ctx context.Context, task bus.Session) (bool, error)
	secrets   func() // called when the credentials of the tools have changed
	owners    func(store.Queryer) ([]bus.Address, error)
}

// newToolset returns the toolset of the agent. [toolset.run] adds the tools that need a sandbox
// test.
func newToolset(cfg *config.Config, w toolDeps, log *slog.Logger) (*toolset, error) {
	h := &toolset{cfg: cfg, log: log, ready: make(chan struct{}), broken: bus.NewSignal(),
		state: sandboxState{mode: cfg.Exec.Sandbox}}
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
	list = append(append(list, reach.Tools()...), recall.Tools(recall.Options{DB: w.knowledge.db,
		Memory: w.knowledge.memory, Now: time.Now, Zone: cfg.Gateway.Location})...)
	list = append(list, clock.New(time.Now, cfg.Gateway.Location), ask.New(),
		message.New(message.Options{DB: w.db, Outbox: w.outbox, Now: time.Now,
			Open: reach.Open, Put: w.media.Put}))
	if i := cfg.Media.Images; i.Model != "" {
		downloads := guardOptions(cfg)
		allowHost(&downloads, i.BaseURL) // the operator has named the provider's host
		list = append(list, image.Tools(image.Options{
			Painter: openai.NewImageClient(i.Model, &openai.Options{
				BaseURL: i.BaseURL, Key: i.Key.Reveal(), Logger: log}),
			Client: guard.New(&downloads).Client(pictureTime),
			Price:  i.Price, Outbox: w.outbox, Now: time.Now, Open: reach.Open,
			Put: w.media.Put})...)
	}
	list = append(list, jobs.New(jobs.Options{Store: JobStore(cfg), Now: time.Now}))
	list = append(list, spawn.Tools(spawn.Options{
		DB: w.db, Inbox: w.inbox, Now: time.Now, Stop: w.stopTask})...)
	if h.tools, err = tool.NewRegistry(list...); err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.mcp = newMCP(h, w)
	return h, nil
}

// pictureTime limits the download of a picture.
const pictureTime = time.Minute

// openRoots opens the folders that the agent can use besides its workspace.
func (h *toolset) openRoots() error {
	for name, r := range config.Sorted(h.cfg.Roots) {
		dir, err := os.OpenRoot(r.Path)
		if err != nil {
			return fmt.Errorf("[roots.%s]: %w; create the folder or remove the entry", name, err)
		}
		h.roots = append(h.roots, files.Root{Name: name, Path: r.Path, Dir: dir, Write: r.Write})
	}
	return nil
}

// close closes the folders that newToolset has opened.
func (h *toolset) close() error {
	var errs []error
	for _, r := range h.roots {
		errs = append(errs, r.Dir.Close())
	}
	return errors.Join(errs...)
}

// run finds a sandbox, tests it again periodically, and runs the MCP servers until ctx ends. When
// it returns, all processes of its tools have ended.
func (h *toolset) run(ctx context.Context) error {
	// Turns resume once ready is closed. They must find all tools, also commands and the tools that
	// MCP servers had in an earlier process.
	h.endOrphans() // left by an earlier process
	h.testSandbox(ctx)
	h.mcp.Restore(ctx)
	close(h.ready)
	var wg sync.WaitGroup
	wg.Go(func() { h.retestSandbox(ctx) })
	err := h.mcp.Run(ctx)
	<-ctx.Done() // Run returns at once without servers
	wg.Wait()
	if s := h.now().shell; s != nil {
		s.Close()
	}
	h.endOrphans()
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// endOrphans ends processes of commands whose supervisor has died.
func (h *toolset) endOrphans() {
	if n := sandbox.EndOrphans(); n > 0 {
		h.log.Warn("processes of commands ended whose supervisor had died", "count", n)
	}
}

// Intervals of looking for a sandbox while there is none, and of testing an existing one.
const (
	firstRetry  = 5 * time.Second
	lastRetry   = 5 * time.Minute
	retestPause = 10 * time.Minute
)

// retestSandbox looks for a sandbox while there is none, since somebody may install one, and tests
// an existing one periodically. It also does so while the gateway is halted: no tool runs then, but
// /readyz must stay correct.
func (h *toolset) retestSandbox(ctx context.Context) {
	if h.cfg.Exec.Sandbox == "off" {
		return
	}
	for retry := firstRetry; ; {
		wait := retry
		if _, ok := h.describeSandbox(); ok {
			retry, wait = firstRetry, compressed(retestPause)
		} else {
			retry = min(2*retry, lastRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-h.broken: // look for a sandbox soon instead
			continue
		case <-time.After(wait):
		}
		h.endOrphans()
		h.testSandbox(ctx)
	}
}

// describeSandbox describes the sandbox in a few words, and reports whether it works.
func (h *toolset) describeSandbox() (text string, ok bool) {
	s := h.now()
	switch {
	case h.cfg.Exec.Sandbox == "off":
		return "switched off", true
	case s.missing != nil:
		return s.missing.Error(), false
	case s.box == nil:
		return "being tested", false
	}
	return s.box.String(), true
}

// testSandbox looks for a sandbox that passes its test, and offers the commands if there is one. A
// sandbox that worked before is tested twice, since a busy machine can make a test fail. After
// bubblewrap has passed, prove accepts no weaker sandbox until a restart: commands could keep the
// machine busy to make the test fail.
func (h *toolset) testSandbox(ctx context.Context) {
	h.testLock.Lock()
	defer h.testLock.Unlock()
	s := h.now()
	before, missing := s.box, s.missing
	box, err := findSandbox(ctx, s.mode)
	if before != nil && (err != nil || box.String() != before.String()) {
		box, err = findSandbox(ctx, s.mode)
	}
	if err != nil && s.mode != h.cfg.Exec.Sandbox {
		err = fmt.Errorf("%w; a weaker one is used only after a restart of the gateway", err)
	}
	if ctx.Err() != nil || err == nil && box == nil {
		return // stopping, or no sandbox is wanted
	}
	if err == nil && s.shell == nil {
		offered := shell.New(h.shellOptions())
		if err = h.tools.Set("shell", offered.Tools()); err == nil {
			s.shell = offered
		} else {
			h.log.ErrorContext(ctx, "commands are not offered", "err", err)
		}
	}
	s.box, s.missing = box, err
	if box != nil && box.Name() == sandbox.Bubblewrap {
		s.mode = sandbox.Bubblewrap
	}
	h.mu.Lock()
	h.state = s // testLock is held, so nobody else has changed it
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

// errNoSandbox tells the model why commands can't run.
var errNoSandbox = errors.New("commands can't run now, because the sandbox does not work; " +
	"the owner can find out why with gateway doctor. Continue without commands, or try again later")

// currentSandbox implements [shell.Options].Sandbox.
func (h *toolset) currentSandbox() (*sandbox.Sandbox, error) {
	box := h.now().box
	if box == nil {
		return nil, errNoSandbox
	}
	return box, nil
}

// recheckSandbox implements [shell.Options].Doubt.
func (h *toolset) recheckSandbox(ctx context.Context) error {
	h.testSandbox(ctx)
	_, err := h.currentSandbox()
	if err != nil {
		h.broken.Ring()
	}
	return err
}

// findSandbox returns a sandbox for commands, or nil if mode is "off".
func findSandbox(ctx context.Context, mode string) (*sandbox.Sandbox, error) {
	if mode == "off" {
		return nil, nil
	}
	return sandbox.Find(ctx, sandbox.Options{Mode: mode})
}

// shellOptions returns the folders and limits of commands.
func (h *toolset) shellOptions() shell.Options {
	e := h.cfg.Exec
	o := shell.Options{
		Sandbox: h.currentSandbox, Doubt: h.recheckSandbox,
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

// Ready returns a channel that is closed when all tools are known.
func (h *toolset) Ready() <-chan struct{} { return h.ready }

// Stop ends the processes of a session's tools that the sender of by may end.
func (h *toolset) Stop(session bus.Session, by *bus.InboundMessage) {
	if s := h.now().shell; s != nil {
		s.Stop(session, by)
	}
}

// States describes the toolset for /status, one line each.
func (h *toolset) States() []string {
	now := h.now()
	var lines []string
	switch {
	case h.cfg.Exec.Sandbox == "off":
		lines = append(lines, "Commands: switched off")
	case now.missing != nil:
		lines = append(lines, "Commands: not offered, because no sandbox works (see gateway doctor)")
	case now.box == nil:
		lines = append(lines, "Commands: the sandbox is being tested")
	default:
		lines = append(lines, "Commands: in the sandbox "+now.box.String())
	}
	for _, s := range h.mcp.States() {
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("MCP server %s: %s, %d tools, %s",
			s.Name, s.State, s.Tools, s.Error), ", "))
	}
	return lines
}

// newGuard returns the SSRF guard for addresses from others.
func newGuard(cfg *config.Config) *guard.Guard {
	o := guardOptions(cfg)
	return guard.New(&o)
}

// guardOptions returns the networks and ports that the configuration allows. It was validated.
func guardOptions(cfg *config.Config) (o guard.Options) {
	for _, s := range cfg.Web.AllowNetworks {
		if p, err := netip.ParsePrefix(s); err == nil {
			o.Allow = append(o.Allow, p)
		}
	}
	for _, s := range cfg.Web.Ports {
		if n, err := strconv.Atoi(s); err == nil {
			o.Ports = append(o.Ports, n)
		}
	}
	return o
}

// newServerGuard returns the SSRF guard for an MCP server. The operator has named the server's
// host, so it may be localhost or a private address, at its port only. Each server has its own
// guard, because it could redirect to a host that is allowed for another one.
func newServerGuard(cfg *config.Config, s config.Server) *guard.Guard {
	o := guardOptions(cfg)
	for _, host := range s.LoginHosts {
		allowHost(&o, "http://"+host)
	}
	if s.URL != "" {
		allowHost(&o, s.URL)
	}
	return guard.New(&o)
}

// allowHost allows the port of an address, and its host if that is an IP address or localhost.
func allowHost(o *guard.Options, address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if n, err := strconv.Atoi(u.Port()); err == nil {
		o.Ports = append(o.Ports, n)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		o.Allow = append(o.Allow, netip.PrefixFrom(a, a.BitLen()))
	}
	if u.Hostname() == "localhost" {
		o.Allow = append(o.Allow, netip.MustParsePrefix("127.0.0.1/32"),
			netip.MustParsePrefix("::1/128"))
	}
}

// webTools returns the tools that use the internet.
func webTools(cfg *config.Config, g *guard.Guard, x *extract.Extractor, log *slog.Logger) (
	[]tool.Tool, error,
) {
	w := cfg.Web
	o := web.Options{Extract: x, Guard: g, Logger: log}
	if w.Search != "off" {
		o.Search = web.SearchOptions{
			Provider: w.Search, Key: w.SearchKey.Reveal(), BaseURL: w.SearchURL}
	}
	tools, err := web.Tools(o)
	if w.Search == "off" {
		tools = slices.DeleteFunc(tools, func(t tool.Tool) bool { return t.Name == "web_search" })
	}
	return tools, err
}
