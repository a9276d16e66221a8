package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gateway/agent"
	"gateway/bus"
	"gateway/store"
)

// Sources provides the current values of gauges.
type Sources struct {
	DB       *store.DB
	Path     string // path of the database
	Inbox    *bus.Inbox
	Outbox   *bus.Outbox
	Agent    func() agent.Stats
	Accounts []Account
	DiskFree func() (bytes uint64, err error) // on the disk of the database
	Counts   []Count

	// Budget returns, for each daily limit, which part of it is used: 1 is all.
	Budget func(q store.Queryer) (map[string]float64, error)

	// LastBackup returns the time of the last backup, or the zero time if there is none.
	LastBackup func() (time.Time, error)

	// Reloads returns how often the configuration was reloaded, and how often that failed.
	Reloads func() (done, failed int64)
}

// An Account is an account on a chat platform.
type Account struct {
	Name, Platform string

	State func() AccountState
}

// An AccountState is the state of an account, and the counts of its messages since the process
// started.
type AccountState struct {
	Up       bool  // the channel receives messages
	Restarts int64 // restarts of its channel

	Received, Repeated, Dropped, Refused, Skipped, Sent, Uncertain, Dead int64
}

// A Count is a number of rows.
type Count struct {
	Name, Help string

	Of func(q store.Queryer, now time.Time) (int, error)
}

// gauges collects the metrics that are read at each scrape.
type gauges struct {
	from Sources

	mu   sync.Mutex
	at   time.Time // time of the last count
	rows rows
}

// rows has the numbers that are counted in tables.
type rows struct {
	err     error
	waiting bus.Backlog
	open    map[string]int
	dead    int
	counts  []int // in the order of Sources.Counts
	budget  map[string]float64
	now     time.Time
}

var errNotYet = errors.New("not done yet")

// fresh is how long counted numbers are reused.
const fresh = time.Second

func newGauges(from Sources) *gauges { return &gauges{from: from, rows: rows{err: errNotYet}} }

// refresh counts rows unless the last count is younger than fresh.
func (g *gauges) refresh(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.at) >= fresh {
		g.rows = g.from.count(g.from.DB.Read(ctx), now)
		g.at = now
	}
}

func (s *Sources) count(q store.Queryer, now time.Time) (r rows) {
	r.now = now
	if r.waiting, r.err = s.Inbox.Backlog(q); r.err != nil {
		return r
	}
	if r.open, r.err = s.Outbox.OpenByAccount(q); r.err != nil {
		return r
	}
	if r.dead, r.err = s.Outbox.DeadLetters(q); r.err != nil {
		return r
	}
	if r.budget, r.err = s.Budget(q); r.err != nil {
		return r
	}
	for _, c := range s.Counts {
		n, err := c.Of(q, now)
		if err != nil {
			return rows{err: err}
		}
		r.counts = append(r.counts, n)
	}
	return r
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descUp = desc("gateway_channel_up",
		"Whether messages of an account come in.", "account", "platform")
	descRestarts = desc("gateway_channel_restarts_total",
		"How often an account's channel was started again.", "account")
	descReceived = desc("gateway_messages_received_total",
		"Messages that were accepted.", "account")
	descRepeated = desc("gateway_messages_repeated_total",
		"Messages that the platform has delivered again.", "account")
	descDropped = desc("gateway_messages_dropped_total",
		"Messages that were not answered, because there were too many.", "account")
	descSkipped = desc("gateway_updates_skipped_total",
		"Updates of the platform on which the code of the channel panicked.", "account")
	descRefused = desc("gateway_messages_refused_total",
		"Messages of senders who are not approved.", "account")
	descSent = desc("gateway_messages_sent_total",
		"Messages that the platform has taken.", "account")
	descUncertain = desc("gateway_messages_uncertain_total",
		"Tries to send whose outcome was never known.", "account")
	descDead = desc("gateway_messages_dead_total",
		"Messages that were given up: see gateway outbox list.", "account")

	descWaiting = desc("gateway_inbox_waiting_messages",
		"Messages that no turn has taken yet.")
	descOldest = desc("gateway_inbox_oldest_waiting_seconds",
		"Age of the oldest one of them; 0 if there is none.")
	descOpen = desc("gateway_outbox_open_messages",
		"Messages that are to be sent.", "account")
	descLetters = desc("gateway_outbox_dead_letters",
		"Messages that were given up and lie in the outbox.")

	descSlots = desc("gateway_model_slots",
		"Model calls that are made at once, at most.")
	descUsed = desc("gateway_model_slots_used",
		"Model calls that are made now.")
	descBusy = desc("gateway_sessions_busy",
		"Sessions in which the agent works.")
	descSuspended = desc("gateway_sessions_suspended",
		"Sessions whose turn waits for somebody.")
	descReloads = desc("gateway_config_reloads_total",
		"How often the configuration was read again, by what came of it.", "outcome")
	descPanics = desc("gateway_panics_total",
		"Turns that were ended by a bug: see the log.")

	descAbandoned = desc("gateway_tools_abandoned",
		"Tool calls that go on though they were to end.")

	descBudget = desc("gateway_budget_used_ratio",
		"Share of a day's budget that is used: of all, and of who has used most of theirs; "+
			"0 without a limit.", "limit")
	descBackup = desc("gateway_backup_last_timestamp_seconds",
		"When the last backup was made; 0 if there never was one.")

	descDatabase = desc("gateway_store_database_bytes",
		"Size of the database.")
	descLog = desc("gateway_store_wal_bytes",
		"Size of its write-ahead log.")
	descDisk = desc("gateway_store_disk_free_bytes",
		"Room on its disk.")
	descTrouble = desc("gateway_store_writes_stuck_seconds",
		"How long writes have been waiting for the database; 0 if they don't.")
)

// Describe implements [prometheus.Collector]. It describes nothing, since the metrics depend on
// the accounts.
func (g *gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	g.collectAccounts(out)
	g.collectAgent(out)
	g.collectRows(out)
	g.collectStore(out)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func total(out chan<- prometheus.Metric, d *prometheus.Desc, n int64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (g *gauges) collectAccounts(out chan<- prometheus.Metric) {
	for _, a := range g.from.Accounts {
		s := a.State()
		up := 0.0
		if s.Up {
			up = 1
		}
		gauge(out, descUp, up, a.Name, a.Platform)
		total(out, descRestarts, s.Restarts, a.Name)
		total(out, descReceived, s.Received, a.Name)
		total(out, descRepeated, s.Repeated, a.Name)
		total(out, descDropped, s.Dropped, a.Name)
		total(out, descRefused, s.Refused, a.Name)
		total(out, descSkipped, s.Skipped, a.Name)
		total(out, descSent, s.Sent, a.Name)
		total(out, descUncertain, s.Uncertain, a.Name)
		total(out, descDead, s.Dead, a.Name)
	}
}

func (g *gauges) collectAgent(out chan<- prometheus.Metric) {
	s := g.from.Agent()
	gauge(out, descSlots, float64(s.Slots))
	gauge(out, descUsed, float64(s.Used))
	gauge(out, descBusy, float64(s.Busy))
	gauge(out, descSuspended, float64(s.Suspended))
	total(out, descPanics, s.Panics)
	gauge(out, descAbandoned, float64(s.Abandoned))
	done, vain := g.from.Reloads()
	total(out, descReloads, done, fine)
	total(out, descReloads, vain, failed)
}

func (g *gauges) collectRows(out chan<- prometheus.Metric) {
	g.mu.Lock()
	r := g.rows
	g.mu.Unlock()
	if r.err != nil {
		out <- prometheus.NewInvalidMetric(descWaiting, fmt.Errorf("telemetry: count: %w", r.err))
		return
	}
	age := 0.0
	if r.waiting.Messages > 0 {
		age = max(0, r.now.Sub(r.waiting.Oldest).Seconds())
	}
	gauge(out, descWaiting, float64(r.waiting.Messages))
	gauge(out, descOldest, age)
	for _, a := range g.from.Accounts {
		gauge(out, descOpen, float64(r.open[a.Name]), a.Name)
	}
	gauge(out, descLetters, float64(r.dead))
	for limit, share := range r.budget {
		gauge(out, descBudget, share, limit)
	}
	for i, c := range g.from.Counts {
		gauge(out, desc(c.Name, c.Help), float64(r.counts[i]))
	}
}

func (g *gauges) collectStore(out chan<- prometheus.Metric) {
	gauge(out, descDatabase, size(g.from.Path))
	gauge(out, descLog, size(g.from.Path+"-wal"))
	if free, err := g.from.DiskFree(); err != nil {
		out <- prometheus.NewInvalidMetric(descDisk, err)
	} else {
		gauge(out, descDisk, float64(free))
	}
	if at, err := g.from.LastBackup(); err != nil {
		out <- prometheus.NewInvalidMetric(descBackup, err)
	} else if at.IsZero() {
		gauge(out, descBackup, 0)
	} else {
		gauge(out, descBackup, float64(at.Unix()))
	}
	stuck := 0.0
	if since, err := g.from.DB.Trouble(); err != nil {
		stuck = time.Since(since).Seconds()
	}
	gauge(out, descTrouble, stuck)
}

// size returns the size of a file in bytes, or 0 if it does not exist.
func size(path string) float64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return float64(st.Size())
}
