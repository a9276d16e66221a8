package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	Agent    func() agent.Stats
	Accounts []Account
	DiskFree func() (bytes uint64, err error) // on the disk of the database, or of the home if less
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

// refresh counts rows unless the last count is younger than fresh. The lock is held while it
// counts, so that concurrent scrapes count once.
func (g *gauges) refresh(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.at) >= fresh {
		g.rows = g.from.count(g.from.DB.Read(ctx), now)
		g.at = now
	}
}

// count reads all numbers that need a query. With an error the others are still there, but
// collectRows then sends none.
func (s *Sources) count(q store.Queryer, now time.Time) (r rows) {
	r.now = now
	var waitingErr, openErr, deadErr, budgetErr error
	r.waiting, waitingErr = bus.ReadBacklog(q)
	r.open, openErr = bus.OpenByAccount(q)
	r.dead, deadErr = bus.DeadLetters(q)
	r.budget, budgetErr = s.Budget(q)
	r.err = errors.Join(waitingErr, openErr, deadErr, budgetErr)
	for _, c := range s.Counts {
		n, err := c.Of(q, now)
		r.counts, r.err = append(r.counts, n), errors.Join(r.err, err)
	}
	return r
}

// Describe implements [prometheus.Collector]. It describes nothing, since the metrics depend on
// the accounts.
func (g *gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector]. It uses the counts of refresh, since it has no context
// that could limit queries.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	s := sink(out)
	g.collectAccounts(s)
	g.collectAgent(s)
	g.collectRows(s)
	g.collectStore(s)
}

// A sink receives the values of one scrape. The labels of its methods are pairs of a name and a
// value.
type sink chan<- prometheus.Metric

func (s sink) gauge(name, help string, v float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, v, labels)
}

func (s sink) total(name, help string, n int64, labels ...string) {
	s.send(prometheus.CounterValue, name, help, float64(n), labels)
}

func (s sink) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

// fail reports that a value can't be read.
func (s sink) fail(name string, err error) {
	s <- prometheus.NewInvalidMetric(prometheus.NewDesc(name, "", nil, nil), err)
}

// collectAccounts sends the state and the counters of each account. The counters begin at 0 with
// each process.
func (g *gauges) collectAccounts(out sink) {
	for _, a := range g.from.Accounts {
		s := a.State()
		up := 0.0
		if s.Up {
			up = 1
		}
		out.gauge("gateway_channel_up", "Whether the channel of an account receives messages.", up,
			"account", a.Name, "platform", a.Platform)
		total := func(name, help string, n int64) { out.total(name, help, n, "account", a.Name) }
		total("gateway_channel_restarts_total", "Restarts of an account's channel.", s.Restarts)
		total("gateway_messages_received_total", "Messages that were accepted.", s.Received)
		total("gateway_messages_repeated_total",
			"Messages that the platform has delivered more than once.", s.Repeated)
		total("gateway_messages_dropped_total",
			"Messages that were not answered, because there were too many.", s.Dropped)
		total("gateway_messages_refused_total",
			"Messages of senders who are not approved.", s.Refused)
		total("gateway_updates_skipped_total",
			"Updates of the platform that were skipped because the code panicked.", s.Skipped)
		total("gateway_messages_sent_total", "Messages that the platform has accepted.", s.Sent)
		total("gateway_messages_uncertain_total",
			"Attempts to send whose outcome is unknown.", s.Uncertain)
		total("gateway_messages_dead_total",
			"Messages that could not be delivered: see gateway outbox list.", s.Dead)
	}
}

// collectAgent sends what the dispatcher and the reloader count in memory.
func (g *gauges) collectAgent(out sink) {
	s := g.from.Agent()
	out.gauge("gateway_model_slots", "Maximum number of concurrent model calls.", float64(s.Slots))
	out.gauge("gateway_model_slots_used", "Current number of model calls.", float64(s.Used))
	out.gauge("gateway_sessions_busy", "Sessions in which the agent works.", float64(s.Busy))
	out.gauge("gateway_sessions_suspended", "Sessions whose turn waits for a person.",
		float64(s.Suspended))
	out.total("gateway_panics_total", "Turns that a bug ended: see the log.", s.Panics)
	out.gauge("gateway_tools_abandoned", "Tool calls that continue after their cancellation.",
		float64(s.Abandoned))
	done, broken := g.from.Reloads()
	for outcome, n := range map[string]int64{fine: done, failed: broken} {
		out.total("gateway_config_reloads_total",
			"Reloads of the configuration, by outcome.", n, "outcome", outcome)
	}
}

// collectRows sends the numbers of the last refresh. If one of them could not be counted, it sends
// none, because 0 would look like a good value.
func (g *gauges) collectRows(out sink) {
	g.mu.Lock()
	r := g.rows
	g.mu.Unlock()
	if r.err != nil {
		out.fail("gateway_inbox_waiting_messages", fmt.Errorf("telemetry: count: %w", r.err))
		return
	}
	age := 0.0
	if r.waiting.Messages > 0 {
		age = max(0, r.now.Sub(r.waiting.Oldest).Seconds())
	}
	out.gauge("gateway_inbox_waiting_messages", "Messages that no turn has claimed yet.",
		float64(r.waiting.Messages))
	out.gauge("gateway_inbox_oldest_waiting_seconds",
		"Age of the oldest waiting message; 0 if there is none.", age)
	for _, a := range g.from.Accounts {
		out.gauge("gateway_outbox_open_messages", "Messages that wait to be sent.",
			float64(r.open[a.Name]), "account", a.Name)
	}
	out.gauge("gateway_outbox_dead_letters", "Messages in the outbox that could not be delivered.",
		float64(r.dead))
	for limit, share := range r.budget {
		out.gauge("gateway_budget_used_ratio", "Used share of the daily budget, and of the "+
			"person's with the largest share; 0 without a limit.", share, "limit", limit)
	}
	for i, c := range g.from.Counts {
		out.gauge(c.Name, c.Help, float64(r.counts[i]))
	}
}

// collectStore sends the sizes of the database and its disk, the age of the backup, and how long
// writes are stuck. A value that can't be read does not hide the others.
func (g *gauges) collectStore(out sink) {
	out.gauge("gateway_store_database_bytes", "Size of the database.", size(g.from.Path))
	out.gauge("gateway_store_wal_bytes", "Size of the write-ahead log.", size(g.from.Path+"-wal"))
	const disk, backup = "gateway_store_disk_free_bytes", "gateway_backup_last_timestamp_seconds"
	if free, err := g.from.DiskFree(); err != nil {
		out.fail(disk, err)
	} else {
		out.gauge(disk, "Free space on the disk of the database, or of the home if less.", float64(free))
	}
	made := 0.0
	at, err := g.from.LastBackup()
	if !at.IsZero() {
		made = float64(at.Unix())
	}
	if err != nil {
		out.fail(backup, err)
	} else {
		out.gauge(backup, "Time of the last backup; 0 if there is none.", made)
	}
	stuck := 0.0
	if since, err := g.from.DB.Trouble(); err != nil {
		stuck = time.Since(since).Seconds()
	}
	out.gauge("gateway_store_writes_stuck_seconds",
		"How long writes have been waiting for the database; 0 if none waits.", stuck)
}

// size returns the size of a file in bytes, or 0 if it does not exist.
func size(path string) float64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return float64(st.Size())
}
