package cli

import (
	"context"
	"errors"
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
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(commands...)
	return cmd
}
