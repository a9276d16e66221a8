package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"gateway/agent"
	"gateway/agent/budget"
	"gateway/agent/command"
	"gateway/agent/extract"
	"gateway/agent/schedule"
	"gateway/bus"
	"gateway/channels"
	"gateway/channels/gate"
	"gateway/channels/media"
	"gateway/channels/router"
	"gateway/channels/supervisor"
	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/hooks"
	"gateway/cmd/gateway/internal/retention"
	"gateway/memory"
	docversion "gateway/memory/version"
	"gateway/session"
	"gateway/store"
)

// Migrations returns the migrations of all packages.
func Migrations() []store.Migration {
	return append(agent.Migrations(), bus.Migration, session.Migration, gate.Migration,
		memory.Migration, docversion.Migration, hooks.Migration)
}

// Serve runs the gateway until ctx ends. With a screen it also ends when the person at the screen
// leaves, unless they keep the gateway running.
func Serve(
	ctx context.Context, cfg *config.Config, load Loader, screen *terminal.Screen,
) (err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer func() {
		if errors.Is(context.Cause(ctx), errLogLost) {
			err = errors.Join(err, errLogLost)
		}
	}()
	SurviveBrokenPipes()
	// From here on SIGHUP does not end the process, even while it starts, unless it is on a
	// terminal.
	hangup, ignore := watchHangup()
	defer ignore()
	h, err := openHome(ctx, cfg)
	if isStopped(ctx, err) {
		return nil
	}
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	var alone atomic.Bool // nobody chats on the terminal
	alone.Store(screen == nil)
	level.Set(logLevel(cfg.Log, screen != nil))
	log, closeLog, err := openLog(cfg.Log, screen, level, func() { end(errLogLost) })
	if err != nil {
		return errors.Join(err, h.close())
	}
	defer func() { _ = closeLog() }() // there is nowhere to report the error
	if info, err := os.Stdin.Stat(); screen == nil && err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		log.InfoContext(ctx, "standard input is not read; to send a message: echo TEXT | gateway chat")
	}
	if warnings := cfg.Warnings(); warnings != nil {
		log.WarnContext(ctx, "some settings can have no effect: see gateway config check", "settings",
			warnings.Error())
	}
	g, err := build(ctx, cfg, h, newRestart(ctx, cfg, end, log), log)
	if err != nil {
		return h.abandon(ctx, err)
	}
	setLevel := func() { level.Set(logLevel(g.settings.Load().Log, !alone.Load())) }
	priced := cfg.Models
	g.reload = &reloader{load: load, hangup: hangup, current: cfg, log: log,
		apply: func(cfg *config.Config) {
			// A turn that runs keeps its model, and so its price, when a reload removes or renames it.
			priced = maps.Clone(priced)
			maps.Copy(priced, cfg.Models)
			g.apply(cfg, priced)
			if err := gate.DismissOwners(ctx, g.gate); err != nil {
				log.ErrorContext(ctx, "former owners may still get messages for owners", "err", err)
			}
			setLevel()
			g.auditRules(ctx, cfg)
		}}
	var terminalChat *chat
	if screen != nil {
		terminalChat = &chat{g, screen, func() {
			alone.Store(true)
			setLevel()
		}}
	}
	// The log is closed later, so all of this can still be logged.
	err = errors.Join(g.live(ctx, terminalChat), NewHomeError(h.path, h.close()))
	if errors.Is(context.Cause(ctx), ErrRestart) {
		if err != nil {
			log.WarnContext(ctx, "the gateway starts again after an error", "err", err)
		}
		return ErrRestart
	}
	return err
}

// A Gateway is a gateway with all its parts.
type Gateway struct {
	name        string
	settings    atomic.Pointer[config.Config] // the settings in force
	log         *slog.Logger
	gate        *gate.Gate
	usage       *budget.Ledger
	home        *home
	db          *store.DB
	scheduler   *schedule.Scheduler
	dispatcher  *agent.Dispatcher
	router      *router.Router
	supervisors []*supervisor.Supervisor
	channels    map[string]channels.Channel // by account
	media       *media.Store
	toolset     *toolset
	ops         *operations
	knowledge   *knowledge
	sweeper     *retention.Sweeper
	terminal    *terminal.Channel // nil if disabled
	reload      *reloader         // nil without live reload
	restart     *command.Restart  // nil if not supported
}

// assemble builds a gateway. restart is nil if a restart is not supported.
func assemble(
	cfg *config.Config, h *home, restart *command.Restart, log *slog.Logger,
) (*Gateway, error) {
	db := h.db
	g := &Gateway{name: cfg.Gateway.Name, log: log, home: h, db: db, knowledge: h.knowledge,
		restart: restart}
	// The parts refer to each other through g. Those that don't exist yet are used in functions,
	// which are called only when g is complete.
	g.settings.Store(cfg)
	inbox, outbox, live := bus.NewInbox(), bus.NewOutbox(), bus.NewLive()
	inbox.SetScopes(sessionScopes(cfg))
	g.gate, g.usage = gate.New(db, inbox, outbox, log), budget.New(budgetOptions(cfg, cfg.Models))
	g.sweeper = newSweeper(cfg, db, g.usage, log)
	var accounts []router.Account
	sources := make(map[string]channels.Channel)
	for name, c := range config.Sorted(cfg.Channels) {
		if !c.Enabled {
			continue
		}
		ch := NewChannel(cfg, name, log)
		if t, ok := ch.(*terminal.Channel); ok {
			g.terminal = t
		}
		sources[name] = ch
		accounts = append(accounts, router.Account{
			Name: name, Channel: ch, Streaming: c.Streaming, Reaction: c.Reaction,
			EditInterval: c.EditInterval, Unlimited: c.RateLimit == "off",
		})
		g.supervisors = append(g.supervisors,
			supervisor.New(db, name, ch, g.gate.Intake(name, newPolicy(cfg, name)), menu(), log))
	}
	g.channels = sources
	files := MediaOptions(cfg, log)
	files.TrustsClock = g.sweeper.TrustsClock
	g.media = media.New(h.media, sources, files)
	g.router = router.New(router.Options{
		DB: db, Outbox: outbox, Live: live, Files: g.media, Owners: gate.People{}, Groups: g.gate,
		Moves: g.gate, Accounts: accounts, SentLog: h.sentLog,
		Orderly: !h.life.IsSuspect("deliveries"), Logger: log,
	})
	// The operations come before the secrets, because the operator's token is a secret, too.
	g.ops = newOperations(cfg, g, inbox)
	g.ops.withheld.update()
	g.gate.Notify(g.router, g.ops.metrics)
	g.router.Notify(g.ops.metrics)
	g.scheduler = g.newScheduler(cfg, inbox)
	decoder, err := extract.New(extract.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	g.toolset, err = newToolset(cfg, toolDeps{
		db: db, inbox: inbox, outbox: outbox, workspace: h.workspace, mediaRoot: h.media,
		media: g.media, knowledge: h.knowledge, extract: decoder,
		stopTask: func(ctx context.Context, task bus.Session) (bool, error) {
			return g.dispatcher.StopTask(ctx, task)
		},
		secrets: g.ops.withheld.update,
		owners:  livePeople{gate: g.gate}.OwnerChats,
	}, log)
	if err != nil {
		return nil, err
	}
	notes, _ := newNotes(cfg, log)
	g.dispatcher = agent.NewDispatcher(
		agent.Deps{DB: db, Life: h.life, Inbox: inbox, Outbox: outbox, Live: live,
			Model: newModel(cfg, cfg.Agent.Model, log), Notes: notes,
			Tools: g.toolset.tools, Media: g.media, Extract: decoder, Memory: h.knowledge.memory,
			Jobs: g.scheduler, Documents: h.knowledge.documents, Versions: h.knowledge.versions,
			Skills: h.knowledge.skills, Transcriber: newTranscriber(cfg, log),
			Voice:  newVoice(cfg, g.withholds, log),
			People: livePeople{gate: g.gate}, Accounts: agentAccounts{g, cfg}, Toolset: g.toolset},
		g.agentOptions(cfg))
	return g, nil
}

// formatHints tells the model, by channel type, which formatting its answers can have.
var formatHints = map[string]string{
	"telegram": "Your answers are shown in Telegram. Use simple Markdown: bold, italics, lists, " +
		"links and code blocks. Wide tables are hard to read there.",
	"discord": "Your answers are shown in Discord. Use Markdown: bold, italics, lists, headings, " +
		"links and code blocks. Wide tables are hard to read there.",
	"whatsapp": "Your answers are shown in WhatsApp, mostly on a phone. Be brief and use simple " +
		"Markdown: bold, italics, lists and code. No tables, no headings.",
	"terminal": "Your answers are shown in a terminal, with their Markdown rendered. Use little of " +
		"it: bold, lists, code and small tables.",
}

// maxSocketPath is the longest Unix socket path that all systems accept. In package syscall,
// RawSockaddrUnix has 104 bytes for it on macOS and FreeBSD, and 108 on Linux. A zero byte ends the
// path.
const maxSocketPath = 103

// SocketPath returns the socket that "gateway chat" connects to, or "" if the path is too long.
func SocketPath(home string) string {
	path := filepath.Join(home, "gateway.sock")
	if len(path) > maxSocketPath {
		return ""
	}
	return path
}

// ChatCommands returns the commands that people can send, in the order of /help. They can be
// listed but not run.
func ChatCommands() []command.Command {
	return append(command.List(), append(accessCommands(nil, leaver{}, nil), mcpCommand(nil))...)
}

func menu() []channels.Command {
	var list []channels.Command
	for _, c := range ChatCommands() {
		if c.Help != "" {
			list = append(list, channels.Command{Name: c.Name, Description: c.Help})
		}
	}
	return list
}

// live runs the gateway until ctx ends. Afterwards it records that the process ended in order.
func (g *Gateway) live(ctx context.Context, terminalChat *chat) error {
	if g.terminal != nil {
		g.terminal.SetHost(host{g, g.home.path})
	}
	g.auditRules(ctx, g.settings.Load())
	// After an error the life is not ended: the next start treats this one as a crash.
	if err := g.run(ctx, terminalChat); err != nil {
		return err
	}
	return NewHomeError(g.home.path, g.home.life.End(context.WithoutCancel(ctx), time.Now()))
}

// run runs all parts until ctx ends or a part fails. It stops them in the order in which a
// message passes them: first the intake, then turns at their next step, then the outbox, then the
// channels.
func (g *Gateway) run(ctx context.Context, terminalChat *chat) error {
	start := time.Now()
	g.db.OnTrouble(func(err error) { g.logTrouble(ctx, err) })
	g.db.OnLongRead(func(held int64) { logLongRead(ctx, g.log, held) })
	defer context.AfterFunc(ctx, g.db.ShortenWaits)()
	g.sweeper.TrustsClock(ctx) // before the clock of this process is in any row
	cfg := g.settings.Load()
	var accounts []string
	for _, s := range g.supervisors {
		accounts = append(accounts, s.Name())
	}
	var outside error // of the intake
	intake := func(ctx context.Context) error {
		outside = g.runIntake(ctx, terminalChat)
		return outside
	}
	g.log.InfoContext(ctx, "gateway ready", "version", BuildVersion(), "pid", os.Getpid(),
		"home", cfg.Gateway.Home, "model", modelName(cfg, cfg.Agent.Model), "channels", accounts)
	err := inOrder(ctx, intake, g.scheduler.Run, g.dispatcher.Run, g.toolset.run, g.knowledge.run,
		g.router.Run, g.runChannels, g.ops.probe, g.sweeper.Run, g.db.Run)
	// The intake also fails without a terminal or an address to listen on, the others only if the
	// home does.
	if !errors.Is(err, outside) {
		err = NewHomeError(g.home.path, err)
	}
	// All stages have returned, so nothing uses these folders.
	err = errors.Join(err, g.toolset.close())
	g.log.InfoContext(ctx, "gateway stopped", "uptime", time.Since(start).Truncate(time.Second))
	return err
}

// logTrouble logs that writes wait for the database, or work again if err is nil.
func (g *Gateway) logTrouble(ctx context.Context, err error) {
	if err == nil {
		g.log.InfoContext(ctx, "the database can be written again")
		return
	}
	g.log.ErrorContext(ctx, "the database can't be written; everything waits until it can: "+
		"make room on its disk, or end what locks it", "err", err)
}

// logLongRead logs that a read keeps held bytes in the write-ahead log, or, for 0, that it has
// ended.
func logLongRead(ctx context.Context, log *slog.Logger, held int64) {
	if held == 0 {
		log.InfoContext(ctx, "the write-ahead log can be emptied again")
		return
	}
	log.WarnContext(ctx, "a program has been reading the database for long, so the write-ahead log "+
		"grows, and everything becomes slower: end it, unless it is a backup", "bytes", held)
}

// inOrder runs stages concurrently. When ctx ends or a stage fails, it cancels the stages one
// after another, each after the one before has returned.
func inOrder(ctx context.Context, stages ...func(context.Context) error) error {
	g, current := errgroup.WithContext(ctx)
	for _, stage := range stages {
		next, cancel := context.WithCancel(context.WithoutCancel(ctx))
		own := current
		g.Go(func() error {
			defer cancel()
			return stage(own)
		})
		current = next
	}
	return g.Wait()
}

// runChannels runs the channels until ctx ends. Some end earlier, after runIntake has closed
// them.
func (g *Gateway) runChannels(ctx context.Context) error {
	var group errgroup.Group
	for _, s := range g.supervisors {
		group.Go(func() error { return s.Run(ctx) })
	}
	err := group.Wait()
	// If this stage returned before ctx ends, the stages after it would end too early.
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// runIntake runs the other sources of messages and the chat at the terminal until ctx or the chat
// ends. Then it closes the intake of the channels.
func (g *Gateway) runIntake(ctx context.Context, terminalChat *chat) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range g.supervisors {
		group.Go(func() error {
			<-ctx.Done()
			s.Close()
			return nil
		})
	}
	group.Go(func() error { return g.media.Run(ctx) })
	if g.ops.server != nil {
		group.Go(func() error { return g.ops.server.Run(ctx) })
	}
	if g.reload != nil {
		group.Go(func() error { return g.reload.run(ctx) })
	}
	if terminalChat != nil {
		// The chat can end the gateway by ending the intake.
		group.Go(func() error { return terminalChat.run(ctx, cancel) })
	}
	return group.Wait()
}
