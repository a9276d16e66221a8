package main

import (
	"log/slog"
	"time"

	questions "gateway/agent/question"
	"gateway/agent/schedule"
	"gateway/agent/usage"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
	"gateway/cmd/gateway/internal/retention"
	"gateway/session"
	"gateway/store"
)

// newSweeper returns what removes old rows. Files have a sweeper of their own: see
// [channels.Media].
func newSweeper(
	cfg *config.Config, db *store.DB, used *usage.Ledger, log *slog.Logger,
) *retention.Sweeper {
	var sessions session.Store
	rules := []retention.Rule{
		{Name: "messages_in", Keep: cfg.Retention.Messages, Prune: bus.NewInbox().Prune},
		{Name: "messages_out", Keep: cfg.Retention.Messages, Prune: bus.NewOutbox().Prune},
		{Name: "questions", Keep: cfg.Retention.Messages, Prune: questions.Store{}.Prune},
		{Name: "transcripts", Keep: cfg.Retention.Transcripts, Prune: sessions.PruneMessages},
		// After their messages.
		{Name: "turns", Keep: cfg.Retention.Transcripts, Prune: sessions.PruneTurns},
		{Name: "runs", Keep: cfg.Retention.Runs, Prune: retention.Repeat(schedule.Store{}.Prune)},
		{Name: "usage", Keep: cfg.Retention.Usage, Prune: retention.Repeat(used.Prune)},
	}
	for i := range rules {
		rules[i].Keep = compressed(rules[i].Keep)
	}
	return retention.New(db, rules, &retention.Options{
		Logger: log, First: compressed(time.Minute), Every: compressed(time.Hour),
		Most: int64(cfg.Retention.MaxTotalMB) << 20,
	})
}
