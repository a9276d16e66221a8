package main

import (
	"log/slog"
	"time"

	questions "gateway/agent/question"
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
	r := cfg.Retention
	var sessions session.Store
	rules := []retention.Rule{
		{Name: "messages_in", Keep: r.Messages, Prune: bus.NewInbox().Prune},
		{Name: "messages_out", Keep: r.Messages, Prune: bus.NewOutbox().Prune},
		{Name: "questions", Keep: r.Messages, Prune: questions.Store{}.Prune},
		{Name: "transcript_messages", Keep: r.Transcripts, Prune: sessions.PruneMessages},
		{Name: "turns", Keep: r.Transcripts, Prune: sessions.PruneTurns}, // after their messages
		{Name: "usage", Keep: r.Usage, Prune: retention.Repeat(used.Prune)},
	}
	for i := range rules {
		rules[i].Keep = compressed(rules[i].Keep)
	}
	return retention.New(db, rules, &retention.Options{
		Logger: log, First: compressed(time.Minute), Every: compressed(time.Hour),
		Most: int64(r.MaxTotalMB) << 20,
	})
}
