package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gateway/agent/mcpserver"
	"gateway/agent/tools/mcp"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
	"gateway/session"
	"gateway/store"
)

// newMCP returns the client of the configured servers.
func newMCP(h *hands) *mcp.Client {
	var servers []mcp.Server
	for _, name := range sortedKeys(h.cfg.MCP) {
		s := h.cfg.MCP[name]
		if !s.Enabled {
			continue
		}
		servers = append(servers, mcp.Server{
			Name: name, Command: s.Command, Env: reveal(s.Env), Dir: h.cfg.Gateway.Workspace,
			URL: s.URL, Header: reveal(s.Headers), Allow: s.Allow, Timeout: s.Timeout,
			Confined: s.Sandbox && len(s.Command) > 0, Least: bus.Role(s.Role),
		})
	}
	return mcp.New(servers, &mcp.Options{
		Set: h.tools.Set, Command: h.serverCommand, HTTP: newServerGuard(h.cfg).Client(0),
		Cache: filepath.Join(h.cfg.Gateway.Home, "mcp"), Logger: h.log,
	})
}

func reveal(secrets map[string]config.Secret) map[string]string {
	plain := make(map[string]string, len(secrets))
	for key, s := range secrets {
		plain[key] = s.Reveal()
	}
	return plain
}

// serverCommand prepares the process of a server.
func (h *hands) serverCommand(ctx context.Context, s mcp.Server) (*exec.Cmd, error) {
	env := mcp.Environ(s.Env)
	if !s.Confined {
		cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
		cmd.Env, cmd.Dir = env, s.Dir
		return cmd, nil
	}
	select { // the sandbox may still be tested
	case <-h.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h.mu.Lock()
	box := h.sandbox
	h.mu.Unlock()
	if box == nil {
		return nil, errors.New("there is no sandbox for it; see gateway doctor, or set " +
			"sandbox = false for this server if you trust it")
	}
	limits := h.limits()
	limits.CPU, limits.KeepFree = serverTime, 0 // others may fill the disk while it lives
	command, err := box.Command(ctx, sandbox.Spec{
		Argv: s.Command, Dir: s.Dir, Env: revealed(s.Env), ReadWrite: []string{s.Dir},
		Network: h.cfg.MCP[s.Name].Network, Limits: limits,
	})
	if err != nil {
		return nil, err
	}
	// It lives as long as ctx, and must not be dropped before.
	context.AfterFunc(ctx, func() {
		if err := command.Close(); err != nil {
			h.log.Warn("sandbox not closed", "server", s.Name, "err", err)
		}
	})
	return command.Cmd, nil
}

// serverTime is how much processor time a server may use in all.
const serverTime = 24 * time.Hour

// revealed returns variables in the form NAME=value.
func revealed(env map[string]string) (list []string) {
	for _, name := range sortedKeys(env) {
		list = append(list, name+"="+env[name])
	}
	return list
}

func mcpCommand(load loader) *cobra.Command {
	return group("mcp", "The Model Context Protocol", mcpServeCommand(load))
}

func mcpServeCommand(load loader) *cobra.Command {
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
				err = mcpserver.Serve(cmd.Context(), os.Stdin, os.Stdout, backend{cfg, db}, buildVersion())
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
