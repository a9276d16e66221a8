package app

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"gateway/agent/audit"
	"gateway/agent/background"
	"gateway/agent/budget"
	"gateway/agent/export"
	questions "gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/tools/mcp"
	"gateway/bus"
	"gateway/channels/gate"
	"gateway/channels/router"
	"gateway/cmd/gateway/internal/backup"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/ops"
	"gateway/cmd/gateway/internal/retention"
	"gateway/session"
	"gateway/store"
)

// Minimum retention, even if the database is too large.
const (
	// Platforms redeliver messages for some time: see [bus.Inbox.Prune].
	minKept = 48 * time.Hour
	// People look at the usage of a month.
	minUsageKept = 32 * 24 * time.Hour
)

// newSweeper returns the sweeper of old database rows. Files have their own sweeper: see
// [media.Store].
func newSweeper(
	cfg *config.Config, db *store.DB, used *budget.Ledger, log *slog.Logger,
) *retention.Sweeper {
	rules, tight := retentionRules(cfg, used)
	return retention.New(db, rules, &retention.Options{
		Logger: log, First: compressed(time.Minute), Every: compressed(time.Hour),
		MaxBytes: int64(cfg.Retention.MaxTotalMB) << 20, Tight: tight, Remains: remains,
		Newest: bus.LastAccepted, Files: func() error { return sweepCopies(cfg) },
	})
}

// sweepCopies removes what killed backups and restores have left in the folders in which they copy
// the data of a gateway. It may contain what people have erased meanwhile.
func sweepCopies(cfg *config.Config) error {
	var errs []error
	for _, path := range []string{MemoryFolder(cfg), cfg.Store.Path(), cfg.Gateway.Workspace} {
		errs = append(errs, backup.Sweep(filepath.Dir(path)))
	}
	return errors.Join(errs...)
}

// retentionRules returns the rules for old rows, and those for a database that is too large.
func retentionRules(
	cfg *config.Config, used *budget.Ledger,
) (rules []retention.Rule, tight [][]retention.Rule) {
	type pruning = func(*store.Tx, time.Time, int64) (int, int64, error)
	rule := func(name string, keep time.Duration, prune pruning) retention.Rule {
		return retention.Rule{Name: name, Keep: compressed(keep), Prune: prune}
	}
	in, out, asked := bus.NewInbox().Prune, bus.NewOutbox().Prune, questions.Prune
	runs, counts := retention.Repeat(schedule.Prune), retention.Repeat(used.Prune)
	rules = []retention.Rule{
		rule("messages_in", cfg.Retention.Messages, in),
		rule("messages_out", cfg.Retention.Messages, out),
		rule("questions", cfg.Retention.Messages, asked),
		rule("transcripts", cfg.Retention.Transcripts, sparingUnnoted(session.PruneMessages)),
		rule("turns", cfg.Retention.Transcripts, session.PruneTurns), // after their messages
		rule("runs", cfg.Retention.Runs, runs),
		rule("usage", cfg.Retention.Usage, counts),
		rule("audit", cfg.Retention.Audit, audit.Prune),
	}
	// The first group has data that nobody misses, the next ones data for search and export.
	tight = [][]retention.Rule{{
		rule("messages_in", minKept, in),
		rule("messages_out", minKept, out),
		rule("questions", minKept, asked),
		rule("turns", minKept, session.PruneTurns),
	}, {
		rule("transcripts", minKept, sparingUnnoted(session.PruneArchived)),
	}, {
		rule("turns", minKept, session.PruneTurns),
	}, {
		rule("runs", minKept, runs),
		rule("usage", minUsageKept, counts),
	}}
	return rules, tight
}

// sparingUnnoted returns a Prune function that calls prune with the id from which on messages must
// stay: a background task will make notes of them.
func sparingUnnoted(
	prune func(tx *store.Tx, below int64, before time.Time, after int64) (int, int64, error),
) func(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
	return func(tx *store.Tx, before time.Time, after int64) (int, int64, error) {
		below := int64(math.MaxInt64)
		from, ok, err := background.Store{}.Least(tx, background.Archive)
		if err != nil {
			return 0, 0, err
		}
		if ok {
			below = from + 1
		}
		return prune(tx, below, before, after)
	}
}

// remains explains, for each table that can be large, which rows stay and how to reduce them.
var remains = map[string]string{
	"inbox": "messages of the last two days, and messages without an answer",
	"outbox": "messages of the last two days, pending messages, and those that could not be " +
		"delivered, until gateway outbox drop",
	"messages": "transcripts that prompts contain, messages of the last two days, and messages that " +
		"wait for a summary (if that fails, the log says so); /compact, /new and a smaller " +
		"context_window reduce them",
	"turns":             "turns with messages, and turns of the last two days",
	"memory_messages":   "archived messages, for search; /forget me and gateway memory forget",
	"memory_entries":    "summaries of conversations; /forget me and gateway memory forget",
	"memory_index_data": "the search index; /forget me and gateway memory forget",
}

// People gives access to the people in the database.
type People struct{ gate.People }

// livePeople is [People] in a running gateway.
type livePeople struct {
	People
	gate *gate.Gate
}

// MayWrite reports whether the sender of m may write now, and updates the Person and the Role of m.
// It is called after a person was forgotten, whom the gate may still remember.
func (p livePeople) MayWrite(q store.Queryer, m *bus.InboundMessage) (bool, error) {
	p.gate.Invalidate()
	return p.gate.MayWrite(q, m)
}

// OwnerChats returns the direct chats of the owners, on the accounts that are configured.
func (p livePeople) OwnerChats(q store.Queryer) ([]bus.Address, error) {
	return gate.OwnerChats(q, p.gate)
}

// NewExporter returns an exporter for the people in the home of cfg. scopes and files are the
// folders of memories and of media. secrets returns the credentials that must not be in an export.
func NewExporter(
	cfg *config.Config, db *store.DB, scopes, files *os.Root, secrets func() router.Secrets,
) *export.Exporter {
	return &export.Exporter{DB: db, People: People{}, Memory: scopes, Media: files,
		Before:    VersionsFolder(cfg),
		Secrets:   func() []string { return secrets() },
		HasSecret: func(r io.Reader) (bool, error) { return secrets().FoundInFile(r) },
		Zone:      cfg.Gateway.Location, Now: time.Now}
}

// StoredSecrets returns the credentials in a configuration and its home. Commands that run beside
// the gateway use it.
func StoredSecrets(cfg *config.Config) (router.Secrets, error) {
	logins, err := mcp.StoredSecrets(MCPFolder(cfg))
	if err != nil {
		return nil, err
	}
	list := append(cfg.Secrets(), logins...)
	if e, err := ops.ReadEndpoint(cfg.Gateway.Home); err == nil {
		list = append(list, e.Token)
	}
	return router.NewSecrets(list), nil
}

// newSender returns the handler of /export.
func (g *Gateway) newSender(cfg *config.Config) *export.Sender {
	secrets := func() router.Secrets { return g.secrets(g.settings.Load()) }
	return &export.Sender{Files: g.media, MaxFile: MediaOptions(cfg, nil).MaxFile,
		Exporter: NewExporter(cfg, g.db, g.knowledge.scopes, g.home.media, secrets)}
}

// Forget revokes the access of a person, if they exist, and deletes what is known about their
// chats.
func (People) Forget(tx *store.Tx, person int64, chats []bus.Address) error {
	err := gate.People{}.Revoke(tx, person)
	if err != nil && !errors.Is(err, gate.ErrNoPerson) {
		return err
	}
	return gate.Forget(tx, chats)
}
