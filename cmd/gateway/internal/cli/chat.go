package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
)

func chatCommand(load, all app.Loader) *cobra.Command {
	return &cobra.Command{
		Use:   "chat",
		Short: "Talk to the agent here: to the running gateway, or to one started for it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load()
			if err != nil {
				return err
			}
			conn, err := dial(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if conn == nil {
				if cfg, err = all(); err != nil {
					return err
				}
				return app.Serve(cmd.Context(), cfg, all, true)
			}
			screen, err := terminal.NewScreen(os.Stdin, os.Stdout)
			if err != nil {
				return errors.Join(fmt.Errorf("terminal: %w", err), conn.Close())
			}
			defer screen.Close()
			return terminal.Chat(cmd.Context(), conn, screen)
		},
	}
}

// dial connects to the running gateway. It returns nil if there is none.
func dial(ctx context.Context, cfg *config.Config) (net.Conn, error) {
	path := app.SocketPath(cfg.Gateway.Home)
	if path == "" {
		return nil, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, app.InHome(cfg.Gateway.Home, err)
	}
	return conn, nil
}
