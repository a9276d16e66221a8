package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
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
	return group("mcp", "Run as an MCP server, and log in to MCP servers",
		mcpServeCommand(load), mcpLoginCommand(load))
}

// mcpServeCommand returns the command that other programs start as an MCP server. Standard output
// belongs to the protocol.
func mcpServeCommand(load app.Loader) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Offer send, sessions and recall to an MCP client, over standard input and output",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			served := false
			cfg, err := load()
			if err == nil {
				err = withData(cmd.Context(), cfg, func(d data) error {
					served = true
					err := mcpserver.Serve(cmd.Context(), os.Stdin, os.Stdout, backend{d.cfg, d.db},
						app.BuildVersion())
					if cmd.Context().Err() != nil {
						return nil // a signal ended it
					}
					return err
				})
			}
			// A client does not show what is written to standard error. So a failure before Serve
			// is answered over the protocol, except to a person who has started the command on a
			// terminal.
			if err == nil || served || isDevice(os.Stdin) {
				return err
			}
			return errors.Join(err, mcpserver.Refuse(cmd.Context(), os.Stdin, os.Stdout, plainText(err)))
		},
	}
}

// isDevice reports whether f is a device such as a terminal. No MCP client uses one.
func isDevice(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// A backend implements [mcpserver.Backend].
type backend struct {
	cfg *config.Config
	db  *store.DB
}

// Send implements [mcpserver.Backend].
func (b backend) Send(ctx context.Context, to bus.Address, text string) (int64, error) {
	m := bus.OutboundMessage{To: to, Text: text}
	if err := checkMessage(b.cfg, &m, nil); err != nil {
		return 0, err
	}
	return queue(ctx, b.db, m)
}

// Sessions implements [mcpserver.Backend].
func (b backend) Sessions(ctx context.Context, limit int) ([]session.Info, error) {
	return session.List(b.db.Read(ctx), limit)
}

// Recall implements [mcpserver.Backend].
func (b backend) Recall(
	ctx context.Context, query, name string, limit int,
) ([]mcpserver.Hit, error) {
	q := b.db.Read(ctx)
	if name != "" {
		switch _, known, err := session.Named(q, name); {
		case err != nil:
			return nil, err
		case !known:
			return nil, fmt.Errorf("there is no session %q: the tool sessions lists them", name)
		}
	}
	found, err := session.Search(q, query, name, limit)
	var hits []mcpserver.Hit
	for _, f := range found {
		hits = append(hits, mcpserver.Hit{Session: f.Session, Time: f.Time,
			Role: string(f.Message.Role), Text: f.Message.Text})
	}
	return hits, err
}

// mcpLoginCommand returns the command that logs the running gateway in to a server. This process
// only shows the link and passes the resulting address on.
func mcpLoginCommand(load app.Loader) *cobra.Command {
	return withConfig(load, &cobra.Command{
		Use:   "login NAME",
		Short: "Log in to an MCP server, by a link that you open in a browser",
		Long: `Log in to an MCP server that requires a login, for the gateway that runs in this home.
The command prints a link. If you open it in a browser on this machine, the command does the rest.
In a browser elsewhere, agree, copy the address at which the browser ends, and paste it here.`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, cfg *config.Config, args []string) error {
		r, err := findRunning(cmd.Context(), cfg.Gateway.Home)
		if err != nil {
			return err
		}
		// The gateway keeps the state of a login between its two steps, and stores the tokens.
		if r == nil {
			return errors.New("no gateway runs in this home; start it first")
		}
		begun, err := r.login(cmd.Context(), url.Values{"server": {args[0]}})
		if err != nil {
			return err
		}
		address, err := awaitAddress(cmd.Context(), cmd.InOrStdin(), begun.Redirect, func() {
			cmd.Printf("Open this link:\n\n%s\n\nThen paste the address at which your browser ends, "+
				"unless it says that you are done.\n", begun.Text)
		})
		if err != nil {
			return err
		}
		done, err := r.login(cmd.Context(), url.Values{"address": {address}})
		if err == nil {
			cmd.Println(done.Text)
		}
		return err
	})
}

// login asks the running gateway to start or to complete a login.
func (r *running) login(ctx context.Context, query url.Values) (app.Login, error) {
	var login app.Login
	// The gateway in turn asks the login service of the server, which may be slow.
	err := r.ask(ctx, http.MethodPost, app.LoginPath+"?"+query.Encode(), time.Minute, &login)
	if err == nil && login.Failed != "" {
		err = errors.New(login.Failed)
	}
	return login, err
}

// awaitAddress returns the address at which the browser ends. It receives the address from a
// browser on this machine at redirect, or reads it from in, where somebody pastes it. It calls
// ready as soon as it listens.
func awaitAddress(
	ctx context.Context, in io.Reader, redirect string, ready func(),
) (string, error) {
	found := make(chan string, 2)
	if u, err := url.Parse(redirect); err == nil && u.Hostname() == "localhost" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", u.Host)
		if err == nil {
			server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != u.Path {
						http.NotFound(w, r)
						return
					}
					fmt.Fprintln(w, "You are done here. The gateway shows the result.")
					select {
					case found <- r.URL.String():
					default: // only the first one counts
					}
				})}
			go func() { _ = server.Serve(l) }() // ends with Shutdown
			defer func() {                      // once the browser has got its page
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				defer cancel()
				_ = server.Shutdown(ctx) // the command ends anyway
			}()
		}
	}
	ready()
	failed := make(chan error, 1)
	// This goroutine may outlive the function, since a read from a terminal can't be cancelled. The
	// command ends soon after. The end of the input is no failure, because the browser can still
	// bring the address.
	go func() {
		for r := bufio.NewReader(in); ; {
			line, err := r.ReadString('\n')
			if line = strings.TrimSpace(line); line != "" {
				found <- line
				return
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					failed <- err
				}
				return
			}
		}
	}()
	select {
	case address := <-found:
		return address, nil
	case err := <-failed:
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
