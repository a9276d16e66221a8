package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"gateway/cmd/gateway/internal/app"
	"gateway/store"
)

// withData calls fn with the gateway's data, which a running gateway may use at the same time.
func withData(ctx context.Context, load app.Loader, fn func(*store.DB) error) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, cfg.Store.Path(), app.Migrations(), &store.Options{Shared: true})
	if errors.Is(err, fs.ErrNotExist) {
		err = errNoData
	}
	if err != nil {
		return app.InHome(cfg.Gateway.Home, err)
	}
	return errors.Join(fn(db), db.Close())
}

// group returns a command that only has others below it.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}
