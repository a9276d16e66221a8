package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gateway/channels"
	"gateway/channels/terminal"
	"gateway/cmd/gateway/internal/app"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// chatCommand returns the command for chats. load needs no credentials, which is enough to talk to
// a running gateway. all also returns what a gateway needs to run.
func chatCommand(load, all app.Loader) *cobra.Command {
	var opts terminal.ScreenOptions
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Talk to the agent in this terminal",
		Long: `Talk to the agent in this terminal. If no gateway runs in the home, the command starts
one.

With --message, or if standard input is not a terminal, the command prints the answer to one message
and ends. A message of several lines is never a command.`,
		Example: "gateway chat -m \"what is due today?\"\ndf -h | gateway chat",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("message") && strings.TrimSpace(opts.Message) == "" {
				return app.NewUsageError(terminal.ErrEmpty)
			}
			return chat(cmd.Context(), load, all, opts)
		},
	}
	cmd.Flags().StringVarP(&opts.Message, "message", "m", "",
		"send this message, print the answer and exit")
	cmd.Flags().BoolVar(&opts.Lines, "lines", false, "each line of standard input is a message, "+
		"sent when the one before it is answered")
	return cmd
}

func contextCommand(load, all app.Loader) *cobra.Command {
	return &cobra.Command{
		Use:   "context [SESSION]",
		Short: "Show what fills the context window of the model in a conversation",
		Long: `Show what fills the context window of the model in a conversation, as /context does in
a chat. Without SESSION the command shows the conversation of the terminal. It asks the running
gateway, or starts one for the answer.`,
		Example: "gateway context telegram/123456789",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return chat(cmd.Context(), load, all, terminal.ScreenOptions{
				Message: strings.Join(append([]string{"/context"}, args...), " ")})
		},
	}
}

// serve runs the gateway. On a terminal it also runs a chat.
func serve(ctx context.Context, cfg *config.Config, all app.Loader) error {
	// A chat changes the settings of the terminal. In the background this would stop the process.
	if !terminal.IsTerminal(os.Stdin, os.Stdout) || inBackground(os.Stdin) {
		return app.Serve(ctx, cfg, all, nil)
	}
	screen, err := app.NewScreen(cfg, terminal.ScreenOptions{Owned: true})
	if err != nil {
		return err
	}
	return app.Serve(ctx, cfg, all, screen)
}

// chat connects to the running gateway, or starts one if none runs.
func chat(ctx context.Context, load, all app.Loader, opts terminal.ScreenOptions) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	conn, err := find(ctx, cfg)
	if err != nil {
		return err
	}
	// Only a gateway that this command starts ends with the chat.
	opts.Owned = conn == nil
	settings := cfg
	if opts.Owned {
		if settings, err = all(); err != nil {
			return err
		}
	}
	// The screen comes first, because an empty message must not start a gateway.
	screen, err := app.NewScreen(settings, opts)
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		return err
	}
	if opts.Owned {
		err = app.Serve(ctx, settings, all, screen)
		if !errors.Is(err, store.ErrLocked) {
			return err
		}
		var failed error // another gateway has begun to start since find
		if conn, failed = find(ctx, cfg); conn == nil {
			return cmp.Or(failed, err)
		}
		screen.SetOwned(false)
	}
	_, err = screen.Chat(ctx, redial(cfg, conn))
	return err
}

// redial returns a function that connects to the running gateway. Its first call returns conn.
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

// findPatience and findRetry say how long and how often find tries to connect to a gateway that
// has begun to start. A start takes long on a busy machine, and if it changes a large database.
const (
	findPatience = time.Minute
	findRetry    = 20 * time.Millisecond
)

// find connects to the running gateway, or to one that is starting. It returns nil, nil if none
// runs, and an error if the one that runs takes no chats.
func find(ctx context.Context, cfg *config.Config) (net.Conn, error) {
	screen, known := cfg.Channels["terminal"]
	// A gateway locks its database before it listens. If the database is locked and nothing
	// listens, either the gateway is starting, or it has no socket, because its terminal is
	// disabled or the path of its home is too long.
	for began := time.Now(); ; {
		conn, err := dial(ctx, cfg)
		if conn != nil || err != nil {
			return conn, err
		}
		unlock, err := store.Lock(cfg.Store.Path() + ".lock")
		switch {
		case err == nil:
			return nil, unlock()
		case !errors.Is(err, store.ErrLocked):
			return nil, nil // there is no home yet, or the gateway reports its problem when it starts
		case app.SocketPath(cfg.Gateway.Home) == "":
			return nil, fmt.Errorf("the gateway in %s takes no chats, because the path of this home is too "+
				"long: set GATEWAY_HOME to a shorter one, such as that of a link to it", cfg.Gateway.Home)
		case known && !screen.Enabled:
			return nil, fmt.Errorf("the gateway in %s takes no chats, because [channels.terminal] has "+
				"\"enabled = false\"", cfg.Gateway.Home)
		case time.Since(began) > findPatience:
			return nil, fmt.Errorf("the gateway in %s takes no chats: its log has the reason",
				cfg.Gateway.Home)
		}
		if !channels.Sleep(ctx, findRetry) {
			return nil, ctx.Err()
		}
	}
}

// dial connects to the running gateway. It returns nil, nil if none runs.
func dial(ctx context.Context, cfg *config.Config) (net.Conn, error) {
	path := app.SocketPath(cfg.Gateway.Home)
	if path == "" {
		return nil, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	// A killed gateway leaves its socket behind, which then refuses connections.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, app.NewHomeError(cfg.Gateway.Home, err)
	}
	return conn, nil
}
