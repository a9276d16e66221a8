package app

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"time"

	"gateway/agent/tools/mcp"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
)

// newMCP returns the client of the configured servers.
func newMCP(h *toolset) *mcp.Client {
	var servers []mcp.Server
	for _, name := range sortedKeys(h.cfg.MCP) {
		s := h.cfg.MCP[name]
		if !s.Enabled {
			continue
		}
		servers = append(servers, mcp.Server{
			HTTP: newServerGuard(h.cfg, s).Client(0),
			Name: name, Command: s.Command, Env: reveal(s.Env), Dir: h.cfg.Gateway.Workspace,
			URL: s.URL, Header: reveal(s.Headers), Allow: s.Allow, Timeout: s.Timeout,
			Confined: s.Sandbox && len(s.Command) > 0, Least: bus.Role(s.Role),
		})
	}
	return mcp.New(servers, &mcp.Options{
		Set: h.tools.Set, Command: h.serverCommand,
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
func (h *toolset) serverCommand(ctx context.Context, s mcp.Server) (*exec.Cmd, error) {
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
