package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"

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

// table prints rows below their headings, or otherwise if there are none.
func table(out io.Writer, otherwise string, headings []string, rows [][]string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, otherwise)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headings}, rows...) {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}
