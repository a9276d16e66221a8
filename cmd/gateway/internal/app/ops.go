package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"gateway/agent"
	"gateway/agent/background"
	"gateway/agent/policy"
	"gateway/agent/schedule"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/router"
	"gateway/channels/supervisor"
	"gateway/cmd/gateway/internal/backup"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/display"
	"gateway/cmd/gateway/internal/doctor"
	"gateway/cmd/gateway/internal/hooks"
	"gateway/cmd/gateway/internal/ops"
	"gateway/cmd/gateway/internal/telemetry"
	"gateway/session"
	"gateway/skills"
	"gateway/store"
)

// operations has the HTTP server for operators and programs, the health checks and the metrics.
type operations struct {
	server  *ops.Server // nil if no address is configured
	token   string      // the operator's token; "" without a server
	probes  []*ops.Probe
	metrics *telemetry.Metrics

	withheld *withheld
}

// secrets returns the credentials that no message may contain: those in the configuration, the
// operator's token in http.json, and the tokens of MCP servers.
func (g *Gateway) secrets(cfg *config.Config) router.Secrets {
	list := append(cfg.Secrets(), g.ops.token)
	if g.toolset != nil {
		list = append(list, g.toolset.mcp.Secrets()...)
	}
	return router.NewSecrets(list)
}

// A withheld tells the router which secrets no message may contain.
type withheld struct {
	// lock holds a value during an update. A reload and the logins to several MCP servers may update
	// at once, and a list must not replace one that was made later.
	lock chan struct{}
	list func() router.Secrets
	set  func(router.Secrets)
}

func newWithheld(list func() router.Secrets, set func(router.Secrets)) *withheld {
	return &withheld{make(chan struct{}, 1), list, set}
}

// update passes the present secrets on.
func (w *withheld) update() {
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	w.set(w.list())
}

// withholds reports whether a text contains a secret and so must not be sent in any form.
func (g *Gateway) withholds(text string) bool {
	return g.secrets(g.settings.Load()).FoundIn(text)
}

// newOperations returns the operations of g. It can be called before g is complete. The functions
// that it passes on use g later.
func newOperations(cfg *config.Config, g *Gateway, inbox *bus.Inbox) *operations {
	o := &operations{
		metrics: telemetry.NewMetrics(BuildVersion(), g.sources(cfg), g.log),
		withheld: newWithheld(func() router.Secrets { return g.secrets(g.settings.Load()) },
			func(s router.Secrets) { g.router.SetSecrets(s) })}
	checks := o.checks(cfg, g)
	if cfg.HTTP.Listen == "" {
		return o
	}
	// Without a configured token each start makes a new one. Commands find it in http.json.
	o.token = cmp.Or(cfg.HTTP.Token.Reveal(), rand.Text())
	o.server = ops.New(cfg.HTTP.Listen, cfg.Gateway.Home, &ops.Options{
		Token: o.token, Ready: ops.NewHealth(checks...),
		Metrics: o.metrics.Handler(), Logger: g.log, Operator: g.operator(),
		Hooks: hooks.New(g.db, inbox, newHooks(cfg),
			&hooks.Options{Done: o.metrics.Posted, Logger: g.log,
				Address: func(a bus.Address) bus.Address { return gate.Present(g.gate, a) }}),
	})
	return o
}

// probe runs the slow checks until ctx ends.
func (o *operations) probe(ctx context.Context) error {
	if o.server == nil {
		<-ctx.Done() // no server uses the results
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range o.probes {
		group.Go(func() error { return p.Run(ctx) })
	}
	return group.Wait()
}

// newHooks returns the enabled hooks.
func newHooks(cfg *config.Config) []hooks.Hook {
	var list []hooks.Hook
	for name, h := range config.Sorted(cfg.Hooks) {
		if !h.Enabled {
			continue
		}
		account, chat, thread := h.Address()
		hook := hooks.Hook{
			Name: name, To: bus.Address{Account: account, Chat: chat, Thread: thread},
			Secret: h.Secret.Reveal(), Auth: hooks.Auth(h.Auth), Header: h.Header,
			Role: bus.Role(h.Role), Own: h.Session == "own",
			Rate: h.Rate, MaxBytes: int64(h.MaxKB) << 10,
		}
		if h.Template != "" {
			hook.Template, _ = hooks.ParseTemplate(h.Template) // the configuration was validated
		}
		list = append(list, hook)
	}
	return list
}

// sources returns the sources of the metrics.
func (g *Gateway) sources(cfg *config.Config) telemetry.Sources {
	s := telemetry.Sources{
		DB: g.db, Path: cfg.Store.Path(),
		// The dispatcher does not exist yet.
		Agent: func() agent.Stats { return g.dispatcher.Stats() },
		DiskFree: func() (uint64, error) {
			disk, err := ops.DiskSpace(fullest(cfg))
			return disk.Free, err
		},
		Budget:     g.usage.Shares,
		LastBackup: func() (time.Time, error) { return backup.Last(cfg.Gateway.Home) },
		Reloads: func() (done, failed int64) {
			done, failed, _ = g.reload.state() // the check "configuration" reports the error
			return done, failed
		},
		Counts: []telemetry.Count{{
			Name: "gateway_chores_due", Help: "Background tasks of the agent's memory that are due.",
			Of: background.Store{}.CountDue,
		}, {
			Name: "gateway_jobs_due", Help: "Jobs, and further attempts of their runs, that are due.",
			Of: schedule.CountDue,
		}, {
			Name: "gateway_outbox_bad_rows",
			Help: "Messages to people that can't be read and were set aside.",
			Of: func(q store.Queryer, _ time.Time) (int, error) {
				return bus.BadRows(q)
			},
		}},
	}
	for _, sup := range g.supervisors {
		s.Accounts = append(s.Accounts, telemetry.Account{
			Name: sup.Name(), Platform: cfg.Channels[sup.Name()].Type,
			State: func() telemetry.AccountState { return g.accountState(sup) },
		})
	}
	return s
}

// accountState returns the state of an account.
func (g *Gateway) accountState(s *supervisor.Supervisor) telemetry.AccountState {
	in, out := g.gate.Stats(s.Name()), g.router.AccountStats(s.Name())
	// Both the gate and the dispatcher can drop a message, so Dropped is their sum.
	return telemetry.AccountState{
		Up: s.Up(), Restarts: s.Restarts(),
		Received: in.Received.Load(), Refused: in.Refused.Load(), Skipped: in.Skipped.Load(),
		Repeated: in.Repeated.Load(),
		Dropped:  in.Dropped.Load() + g.dispatcher.Stats().Dropped[s.Name()],
		Sent:     out.Sent.Load(), Uncertain: out.Uncertain.Load(), Dead: out.Dead.Load(),
	}
}

// Limits of the checks.
const (
	lostTime  = 10 * time.Second // a channel may be disconnected for this long
	stuckTime = 15 * time.Second // a healthy loop reports every two seconds
	probeTime = 2 * time.Second  // a write may take this long
	probeWait = 5 * time.Second  // pause between two tests
	minDisk   = 64 << 20
	maxDisk   = 1 << 30 // always enough, even on a larger disk
)

// checks returns the conditions for the gateway to be ready. Slow checks are probes, so that a disk
// that hangs does not delay the answer of the server.
func (o *operations) checks(cfg *config.Config, g *Gateway) []ops.Check {
	// probe returns the test of a new probe, which [operations.probe] runs.
	probe := func(
		try func(ctx context.Context) (string, error),
	) func(context.Context) (string, bool) {
		p := ops.NewProbe(testableTimeout(probeWait), probeTime, try)
		o.probes = append(o.probes, p)
		return p.Test
	}
	var list []ops.Check
	for _, s := range g.supervisors {
		list = append(list, ops.Check{Name: "channel " + s.Name(),
			Test: func(context.Context) (string, bool) {
				state, _ := s.State()
				return state, s.IsHealthy(testableTimeout(lostTime))
			}})
	}
	written := probe(func(ctx context.Context) (string, error) {
		return "writable", g.db.Probe(ctx)
	})
	return append(list,
		ops.Check{Name: "dispatcher", Test: checkHeartbeat(func() time.Time {
			return g.dispatcher.Stats().Beat
		})},
		ops.Check{Name: "tools", Test: func(context.Context) (string, bool) {
			return toolState(g.dispatcher.Stats().Abandoned)
		}},
		ops.Check{Name: "scheduler",
			Test: checkHeartbeat(func() time.Time { return g.scheduler.LastSeen() })},
		ops.Check{Name: "router", Test: checkHeartbeat(func() time.Time { return g.router.LastRun() })},
		ops.Check{Name: "store", Test: func(ctx context.Context) (string, bool) {
			state, ok := written(ctx)
			if _, err := g.db.Trouble(); err != nil && !ok {
				state += ": " + err.Error()
			}
			return state, ok
		}},
		ops.Check{Name: "disk", Test: probe(func(context.Context) (string, error) {
			return examineDisk(fullest(cfg))
		})},
		ops.Check{Name: "inbox", Test: probe(func(ctx context.Context) (string, error) {
			return g.oldest(ctx, 2*cfg.Agent.TurnTimeout)
		})},
		ops.Check{Name: "sandbox", Test: func(context.Context) (string, bool) {
			return g.toolset.describeSandbox()
		}},
		ops.Check{Name: "configuration", Test: func(context.Context) (string, bool) {
			if g.reload == nil {
				return "as at the start", true
			}
			if _, _, err := g.reload.state(); err != nil {
				return "not reloaded: " + err.Error(), false
			}
			return "holds", true
		}},
		ops.Check{Name: "halt", Test: probe(func(ctx context.Context) (string, error) {
			return halted(g.db.Read(ctx))
		})})
}

// checkHeartbeat returns a test that fails if a loop has not reported for stuckTime.
func checkHeartbeat(beat func() time.Time) func(context.Context) (string, bool) {
	return func(context.Context) (string, bool) {
		at := beat()
		if at.IsZero() {
			return "not started", false
		}
		if age := time.Since(at); age > testableTimeout(stuckTime) {
			return "stuck for " + age.Truncate(time.Second).String(), false
		}
		return "works", true
	}
}

// maxAbandoned is the accepted number of tool calls that keep running after their cancellation.
// Each one holds a goroutine and its resources.
const maxAbandoned = 32

// toolState describes the cancelled tool calls that are still running. It is bad if they are too
// many.
func toolState(abandoned int64) (string, bool) {
	switch {
	case abandoned == 0:
		return "no cancelled call is still running", true
	case abandoned <= maxAbandoned:
		return fmt.Sprintf("%d cancelled calls are still running", abandoned), true
	}
	return fmt.Sprintf("%d cancelled calls are still running: look for a disk or a network file "+
		"system that does not answer, and restart the gateway", abandoned), false
}

// fullest returns the folder of the database or the home, whichever has less free space. They may
// be on different disks.
func fullest(cfg *config.Config) string {
	home, database := cfg.Gateway.Home, filepath.Dir(cfg.Store.Path())
	a, err := ops.DiskSpace(home)
	if err != nil {
		return home // the caller gets the same error
	}
	if b, err := ops.DiskSpace(database); err != nil || b.Free < a.Free {
		return database
	}
	return home
}

// examineDisk returns an error if the disk of path has too little free space.
func examineDisk(path string) (string, error) {
	disk, err := ops.DiskSpace(path)
	if err != nil {
		return "", err
	}
	// The limit is one percent of the disk, within minDisk and maxDisk.
	least := max(minDisk, min(disk.Total/100, maxDisk))
	state := fmt.Sprintf("%d MB free", disk.Free>>20)
	if disk.Free < least {
		return "", fmt.Errorf("%s, want %d MB: make room on the disk of %s", state, least>>20, path)
	}
	return state, nil
}

// oldest returns an error if a message has waited for more than longest and nobody works on it.
func (g *Gateway) oldest(ctx context.Context, longest time.Duration) (string, error) {
	list, err := bus.WaitingSince(g.db.Read(ctx), time.Now().Add(-longest))
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if !g.dispatcher.Serves(session.Of(r.Message)) {
			return "", fmt.Errorf("message %d has waited for %s, and nobody works on it: "+
				"restart the gateway", r.Seq, display.Ago(r.At))
		}
	}
	return "nothing waits for too long", nil
}

// halted describes the emergency stop. A halt is not an error, because somebody wants it.
func halted(q store.Queryer) (string, error) {
	h, err := policy.GetHalt(q)
	switch {
	case err != nil:
		return "", err
	case h != nil:
		return "halted for " + display.Ago(h.Since), nil // the name of that person is private here
	}
	return "not halted", nil
}

// Paths of the operator's server, used by the command line.
const (
	ProcessPath  = "/operator/process"  // GET: a Process
	DoctorPath   = "/operator/doctor"   // GET: []doctor.Finding; with ?offline=true without network
	SecurityPath = "/operator/security" // GET: []doctor.Problem; POST also corrects file modes
	LoginPath    = "/operator/mcp"      // POST: ?server= starts a login, ?address= completes it
)

// A Process describes a running gateway.
type Process struct {
	PID       int
	Version   string
	Began     time.Time
	Variables []string        // environment variables that affect its settings
	Settings  json.RawMessage // see [config.Shared]
}

// A Correction is the response of [SecurityPath].
type Correction struct {
	Problems []doctor.Problem
	Failed   string // why the audit or the corrections are incomplete, or ""
}

// operator returns the handler for the commands of the command line. This process handles each
// request itself, because only it has the current settings and credentials.
func (g *Gateway) operator() http.Handler {
	p := Process{PID: os.Getpid(), Version: BuildVersion(), Began: time.Now()}
	first := g.settings.Load() // those of the start, whose variables stay in effect
	variables := sync.OnceValue(func() []string { return first.Explain().Variables })
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ProcessPath, func(w http.ResponseWriter, r *http.Request) {
		answer(w, p.with(g.settings.Load(), variables()))
	})
	mux.HandleFunc("GET "+DoctorPath, func(w http.ResponseWriter, r *http.Request) {
		answer(w, Examine(r.Context(), g.settings.Load(), r.FormValue("offline") == "true"))
	})
	mux.HandleFunc("GET "+SecurityPath, func(w http.ResponseWriter, r *http.Request) {
		list, err := Audit(r.Context(), g.settings.Load())
		answer(w, Correction{Problems: list, Failed: text(err)})
	})
	mux.HandleFunc("POST "+SecurityPath, func(w http.ResponseWriter, r *http.Request) {
		list, err := Audit(r.Context(), g.settings.Load())
		err = errors.Join(err, doctor.Fix(list))
		answer(w, Correction{Problems: list, Failed: text(err)})
	})
	mux.HandleFunc("POST "+LoginPath, func(w http.ResponseWriter, r *http.Request) {
		answer(w, g.login(r.Context(), r.FormValue("server"), r.FormValue("address")))
	})
	return mux
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller may have disconnected
}

// text returns the text of an error, or "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// with returns p with the settings in cfg and the variables that affect them.
func (p Process) with(cfg *config.Config, variables []string) Process {
	shared := *cfg
	if abs, err := filepath.Abs(cfg.File); err == nil {
		shared.File = abs // a command may run in another folder
	}
	p.Settings, p.Variables = shared.Share(), variables
	return p
}

// Examine looks for problems that keep a gateway with these settings from working.
func Examine(ctx context.Context, cfg *config.Config, offline bool) []doctor.Finding {
	c := doctorCase(cfg)
	c.Offline = offline
	return doctor.Examine(ctx, c)
}

// tryTime is the timeout of a request while a person waits for its outcome.
const tryTime = 30 * time.Second

// TryChannel checks the token of a Telegram or Discord account.
func TryChannel(
	ctx context.Context, cfg *config.Config, account string,
) (doctor.Identity, []doctor.Finding) {
	return doctor.TryChannel(ctx, doctor.Case{Config: cfg, Timeout: tryTime}, account)
}

// Audit looks for unsafe conditions of a gateway with these settings.
func Audit(ctx context.Context, cfg *config.Config) ([]doctor.Problem, error) {
	return doctor.Audit(ctx, doctor.AuditCase{
		Case: doctorCase(cfg), Root: os.Geteuid() == 0 && !inContainer(),
		Skills: func(ctx context.Context) (map[string]string, error) {
			shared, err := SharedIfThere(cfg)
			if shared == nil {
				return nil, err
			}
			defer shared.Close()
			// Only shared skills have pins, so the folder of the scopes is not needed.
			library := NewSkills(cfg, shared, nil, slog.New(slog.DiscardHandler))
			return skills.Pins(PinsFile(cfg)).Review(ctx, library)
		},
	})
}

// doctorCase returns the gateway that the doctor and the audit check.
func doctorCase(cfg *config.Config) doctor.Case {
	return doctor.Case{
		Config: cfg, File: cfg.File, Migrations: Migrations(),
		Sandbox: func(ctx context.Context) (*sandbox.Sandbox, error) {
			return findSandbox(ctx, cfg.Exec.Sandbox)
		},
		LastBackup: func() (time.Time, error) { return backup.Last(cfg.Gateway.Home) },
		WhatsApp:   func(account string) string { return WhatsAppStore(cfg, account) },
		Persona:    func(name string) string { return filepath.Join(PersonasFolder(cfg), name) },
		SkillNames: func() ([]string, error) { return skillNames(cfg) },
	}
}

// inContainer reports whether this process seems to run in a container.
func inContainer() bool {
	for _, file := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" || os.Getenv("container") != ""
}
