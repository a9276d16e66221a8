package cli

import (
	"context"
	"errors"
	"io/fs"
	"net"
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
				return app.Serve(cmd.Context(), cfg, all, app.NewScreen(cfg, true))
			}
			_, err = app.NewScreen(cfg, false).Chat(cmd.Context(), redial(cfg, conn))
			return err
		},
	}
}

// redial returns what connects to the running gateway: at first by conn.
func redial(cfg *config.Config, conn net.Conn) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		if first := conn; first != nil {
			conn = nil
			return first, nil
		}
		next, err := dial(ctx, cfg)
		if err == nil && next == nil {
			err = terminal.ErrLost
		}
		return next, err
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
