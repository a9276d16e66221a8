package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/mcpserver"
	"gateway/bus"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/session"
	"gateway/store"
)

func mcpCommand(load app.Loader) *cobra.Command {
	return group("mcp", "The Model Context Protocol", mcpServeCommand(load))
}

func mcpServeCommand(load app.Loader) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Offer send, sessions and recall to an MCP client, over standard input and output",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			served := false
			err := withData(cmd.Context(), load, func(db *store.DB) error {
				cfg, err := load()
				if err != nil {
					return err
				}
				served = true
				err = mcpserver.Serve(cmd.Context(), os.Stdin, os.Stdout, backend{cfg, db}, app.BuildVersion())
				if cmd.Context().Err() != nil {
					return nil // ended by a signal
				}
				return err
			})
			if err == nil || served || isDevice(os.Stdin) {
				return err
			}
			return errors.Join(err, mcpserver.Refuse(cmd.Context(), os.Stdin, os.Stdout, plain(err)))
		},
	}
}

// isDevice reports whether f is a device such as a terminal, where no program asks.
func isDevice(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// A backend does what MCP clients ask for. It implements [mcpserver.Backend].
type backend struct {
	cfg *config.Config
	db  *store.DB
}

// Send implements mcpserver.Backend.
func (b backend) Send(ctx context.Context, to bus.Address, text string) (id int64, err error) {
	m := bus.OutboundMessage{To: to, Text: text}
	if err := checkMessage(b.cfg, &m, nil); err != nil {
		return 0, err
	}
	err = b.db.Tx(ctx, func(tx *store.Tx) error {
		id, err = bus.NewOutbox().Add(tx, m, time.Now())
		return err
	})
	return id, err
}

// Sessions implements mcpserver.Backend.
func (b backend) Sessions(ctx context.Context, limit int) ([]session.Info, error) {
	return session.Store{}.List(b.db.Read(ctx), limit)
}

// Recall implements mcpserver.Backend.
func (b backend) Recall(
	ctx context.Context, query, key string, limit int,
) ([]mcpserver.Hit, error) {
	found, err := session.Store{}.Search(b.db.Read(ctx), query, session.Key(key), limit)
	var hits []mcpserver.Hit
	for _, f := range found {
		hits = append(hits, mcpserver.Hit{Session: f.Session, Time: f.Time,
			Role: string(f.Message.Role), Text: f.Message.Text})
	}
	return hits, err
}
