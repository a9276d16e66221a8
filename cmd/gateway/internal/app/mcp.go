package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gateway/agent/command"
	"gateway/agent/tools/mcp"
	"gateway/agent/tools/shell/sandbox"
	"gateway/bus"
	"gateway/cmd/gateway/internal/config"
	"gateway/store"
)

// newMCP returns the client of the configured MCP servers. It connects to none of them before it
// runs.
func newMCP(h *toolset, w toolDeps) *mcp.Client {
	var servers []mcp.Server
	for name, s := range config.Sorted(h.cfg.MCP) {
		if !s.Enabled {
			continue
		}
		servers = append(servers, mcp.Server{
			HTTP: newServerGuard(h.cfg, s).Client(0),
			Name: name, Command: s.Command, Env: reveal(s.Env), Dir: h.cfg.Gateway.Workspace,
			URL: s.URL, Header: reveal(s.Headers), Allow: s.Allow, Timeout: s.Timeout,
			OAuth: mcp.OAuth{Grant: s.Login, ClientID: s.ClientID,
				ClientSecret: s.ClientSecret.Reveal(), PrivateKey: s.PrivateKey.Reveal(),
				Redirect: s.Redirect, IdentityURL: s.IdentityURL,
				IdentityClientID: s.IdentityClientID, IdentityFile: s.IdentityFile},
			Confined: s.Sandbox && len(s.Command) > 0, MinRole: bus.Role(s.Role),
		})
	}
	return mcp.New(servers, &mcp.Options{
		Set: h.tools.Set, Command: h.serverCommand,
		Cache: MCPFolder(h.cfg), Changed: w.secrets, Report: reportTools(w), Logger: h.log,
	})
}

// MCPFolder returns the folder with the logins to MCP servers and the cached lists of their
// tools.
func MCPFolder(cfg *config.Config) string { return filepath.Join(cfg.Gateway.Home, "mcp") }

func reveal(secrets map[string]config.Secret) map[string]string {
	plain := make(map[string]string, len(secrets))
	for key, s := range secrets {
		plain[key] = s.Reveal()
	}
	return plain
}

// serverCommand prepares the process of an MCP server.
func (h *toolset) serverCommand(ctx context.Context, s mcp.Server) (*exec.Cmd, error) {
	env := mcp.Environ(s.Env)
	// The operator trusts this server: it has the rights of the gateway.
	if !s.Confined {
		cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
		cmd.Env, cmd.Dir = env, s.Dir
		return cmd, nil
	}
	select { // wait until the sandbox was tested
	case <-h.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	box := h.now().box
	if box == nil {
		return nil, errors.New("there is no sandbox for it; see gateway doctor, or set " +
			"sandbox = false for this server if you trust it")
	}
	limits := h.limits()
	limits.CPU, limits.KeepFree = serverTime, 0 // others may fill the disk while the server runs
	command, err := box.Command(ctx, sandbox.Spec{
		Argv: s.Command, Dir: s.Dir, Env: envList(s.Env), ReadWrite: []string{s.Dir},
		Network: h.cfg.MCP[s.Name].Network, Limits: limits,
	})
	if err != nil {
		return nil, err
	}
	// The sandbox must stay open as long as ctx.
	context.AfterFunc(ctx, func() {
		if err := command.Close(); err != nil {
			h.log.Warn("sandbox not closed", "server", s.Name, "err", err)
		}
	})
	return command.Cmd, nil
}

// serverTime limits the total CPU time of a server.
const serverTime = 24 * time.Hour

// envList returns the variables in the form NAME=value.
func envList(env map[string]string) (list []string) {
	for name, value := range config.Sorted(env) {
		list = append(list, name+"="+value)
	}
	return list
}

// mcpCommand returns the command /mcp. With a nil client it can be listed but not run. Errors are
// shown as they are, because only admins can use the command.
func mcpCommand(client *mcp.Client) command.Command {
	return command.Command{
		Name: "mcp", Help: "MCP servers, and logging in to them", MinRole: bus.Admin,
		Run: func(ctx context.Context, r *command.Request) (command.Reply, error) {
			word, rest := command.FirstWord(r.Args)
			text, err := "", error(nil)
			switch word {
			case "":
				text = listServers(client.States())
			case "login":
				if r.Message.Group {
					return command.Reply{Text: "Log in from a direct chat with me: here others would " +
						"see the link."}, nil
				}
				text, err = beginLogin(ctx, client, rest)
			case "code":
				text, err = finishLogin(ctx, client, rest)
			case "agree":
				name, code := command.FirstWord(rest)
				if err = client.Approve(ctx, name, code); err == nil {
					text = "I use the tools of `" + name + "` as they are now."
				}
			case "logout":
				if err = client.Logout(rest); err == nil {
					text = "I have deleted the tokens for `" + rest + "`."
				}
			default:
				text = "Send `/mcp`, `/mcp login NAME`, `/mcp code ADDRESS`, " +
					"`/mcp logout NAME` or `/mcp agree NAME CODE`."
			}
			if err != nil {
				text = "That did not work: " + err.Error() + "."
			}
			return command.Reply{Text: text}, nil
		}}
}

// listServers describes each server as a list item.
func listServers(states []mcp.State) string {
	if len(states) == 0 {
		return "There are no MCP servers in the configuration."
	}
	var b strings.Builder
	for _, s := range states {
		fmt.Fprintf(&b, "- **%s**: %s, %d tools", s.Name, s.State, s.Tools)
		if s.Error != "" {
			b.WriteString(". " + s.Error)
		}
		b.WriteString("\n")
		if len(s.Held) > 0 {
			b.WriteString("\n" + heldChanges(s) + "\n\n")
		}
	}
	return b.String()
}

// heldChanges returns the message about changes of a server's tools that wait for an admin.
func heldChanges(s mcp.State) string {
	return fmt.Sprintf("The MCP server %s has changed its tools. Until an admin sends "+
		"`/mcp agree %s %s`, I use the earlier versions and no new tools. The words in quotation marks "+
		"are the server's, not mine:\n\n- %s", s.Name, s.Name, s.Code, strings.Join(s.Held, "\n- "))
}

// reportTools returns a function that tells the owners that a server's tools have changed. After an
// error nobody was told, because one transaction stores the messages to all owners.
func reportTools(w toolDeps) func(context.Context, mcp.State) error {
	return func(ctx context.Context, s mcp.State) error {
		return w.db.Tx(ctx, func(tx *store.Tx) error {
			owners, err := w.owners(tx)
			for i := 0; i < len(owners) && err == nil; i++ {
				err = w.outbox.Put(tx, bus.OutboundMessage{To: owners[i], Text: heldChanges(s),
					Buttons: []bus.Button{{Label: "Agree", Text: "/mcp agree " + s.Name + " " + s.Code}},
				}, time.Now())
			}
			return err
		})
	}
}

// beginLogin starts the login to a server and returns the instructions for the person.
func beginLogin(ctx context.Context, client *mcp.Client, name string) (string, error) {
	link, err := client.Login(ctx, name)
	if err != nil {
		return "", err
	}
	at := cmp.Or(redirectOf(link), mcp.DefaultRedirect)
	return fmt.Sprintf("Open this link and log in, within 15 minutes:\n\n%s\n\nYour browser ends at "+
		"an address that begins with `%s`. That page need not load. Copy its whole address and send "+
		"`/mcp code ADDRESS`.", link, at), nil
}

// finishLogin completes the login with the address at which the browser ended.
func finishLogin(ctx context.Context, client *mcp.Client, address string) (string, error) {
	// Chat programs and people put addresses in such marks.
	name, err := client.Finish(ctx, strings.Trim(address, "<>`"))
	if err != nil {
		return "", err
	}
	return "I am logged in to `" + name + "`.", nil
}

// A Login is the response of [LoginPath].
type Login struct {
	Text, Failed string
	Redirect     string // the address at which the browser will end
}

// login starts the login to a server, or completes it if address is set.
func (g *Gateway) login(ctx context.Context, server, address string) Login {
	if address != "" {
		decision, err := finishLogin(ctx, g.toolset.mcp, address)
		return Login{Text: decision, Failed: text(err)}
	}
	link, err := g.toolset.mcp.Login(ctx, server)
	return Login{Text: link, Failed: text(err), Redirect: redirectOf(link)}
}

// redirectOf returns the address at which a browser ends that opens a link, or "".
func redirectOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.Query().Get("redirect_uri")
}
