package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gateway/agent/suggest"
)

// Budget limits the use of language models. Days begin at midnight in the gateway's time zone; 0
// means no limit.
type Budget struct {
	TurnTokens     int     `key:"turn_tokens" min:"0"`
	TurnDollars    float64 `key:"turn_dollars" min:"0"`
	SessionTokens  int     `key:"session_tokens" min:"0"` // per conversation and day
	SessionDollars float64 `key:"session_dollars" min:"0"`
	PersonTokens   int     `key:"person_tokens" min:"0"` // per person and day
	PersonDollars  float64 `key:"person_dollars" min:"0"`
	DayTokens      int     `key:"day_tokens" min:"0"` // per day in total
	DayDollars     float64 `key:"day_dollars" min:"0"`
}

// Prices has the assumed prices of models without a configured price, in dollars per million
// tokens.
type Prices struct {
	CeilingIn  float64 `key:"ceiling_in" min:"0"`
	CeilingOut float64 `key:"ceiling_out" min:"0"`
}

// Approvals has the settings for tool calls that need approval.
type Approvals struct {
	Approver string        `key:"approver" allowed:"user admin owner"` // or a higher role
	Timeout  time.Duration `key:"timeout" min:"1s"`                    // then the call is denied
}

// A Tool says for each role whether the agent may use a tool.
type Tool struct {
	Owner string `key:"owner" allowed:"inherit allow ask deny"`
	Admin string `key:"admin" allowed:"inherit allow ask deny"`
	User  string `key:"user" allowed:"inherit allow ask deny"`
	Guest string `key:"guest" allowed:"inherit allow ask deny"`

	// Command patterns for exec. The first list with a matching pattern decides.
	DenyCommands  []string `key:"deny_commands"`
	AskCommands   []string `key:"ask_commands"`
	AllowCommands []string `key:"allow_commands"`
}

// Inherit is the value of a [Tool] for a role whose decision it does not change.
const Inherit = "inherit"

// toolNames contains the names of the built-in tools.
const toolNames = "exec exec_input exec_list read_file list_dir glob grep write_file edit_file " +
	"apply_patch notebook_edit web_search web_fetch remember recall forget history_search time " +
	"ask message schedule spawn subagents generate_image edit_image"

// ToolNames returns the names of the built-in tools.
func ToolNames() []string { return strings.Fields(toolNames) }

// ToolPrefix returns the prefix of the tool names of [mcp.NAME].
func ToolPrefix(server string) string { return "mcp_" + server + "_" }

// Exec has the settings and limits of commands.
type Exec struct {
	Sandbox   string        `key:"sandbox" allowed:"auto bubblewrap landlock none off"`
	Network   bool          `key:"network"`
	Timeout   time.Duration `key:"timeout" min:"1s"` // maximum duration of a command
	MemoryMB  int           `key:"memory_mb" min:"16" max:"1000000000"`
	Processes int           `key:"processes" min:"1"`
	DiskMB    int           `key:"disk_mb" min:"1" max:"1000000000"` // written by a command

	ProcessesTotal int `key:"processes_total" min:"1"`               // of all commands together
	KeepFreeMB     int `key:"keep_free_mb" min:"0" max:"1000000000"` // kept free; 0: none

	Env []string `key:"env"` // variables that commands see
}

// Web has the settings of tools that use the internet.
type Web struct {
	Search        string   `key:"search" allowed:"duckduckgo brave tavily searxng off"`
	SearchKey     Secret   `key:"search_key"`
	SearchURL     string   `key:"search_url"`     // "": provider's default
	AllowNetworks []string `key:"allow_networks"` // private networks that tools may use
	Ports         []string `key:"ports"`          // allowed ports besides 80 and 443
}

// A Root is a folder outside the workspace that the file tools can use.
type Root struct {
	Path  string `key:"path"` // absolute
	Write bool   `key:"write"`
}

// A Server is an MCP server.
type Server struct {
	Enabled bool              `key:"enabled"`
	Command []string          `key:"command"` // of a stdio server
	Env     map[string]Secret `key:"env"`     // of the command
	URL     string            `key:"url"`     // of an HTTP server
	Headers map[string]Secret `key:"headers"` // of HTTP requests
	Allow   []string          `key:"allow"`   // patterns of its tools; empty: all
	Approve string            `key:"approve" allowed:"allow ask deny"`
	Role    string            `key:"role" allowed:"guest user admin owner"` // lowest role
	Timeout time.Duration     `key:"timeout" min:"1s"`                      // of a call
	Sandbox bool              `key:"sandbox"`
	Network bool              `key:"network"` // network access in the sandbox

	// Login is the OAuth grant with which the gateway logs in to the URL.
	Login string `key:"login" allowed:"authorization_code client_credentials cross_app_access"`

	ClientID     string   `key:"client_id"` // "": the gateway registers itself
	ClientSecret Secret   `key:"client_secret"`
	PrivateKey   Secret   `key:"private_key"` // PEM, instead of ClientSecret
	Redirect     string   `key:"redirect"`    // address at which the browser ends
	LoginHosts   []string `key:"login_hosts"` // private hosts allowed for the login

	// For cross_app_access: address and client id for the token exchange, and the file with the
	// identity token.
	IdentityURL      string `key:"identity_url"`
	IdentityClientID string `key:"identity_client_id"`
	IdentityFile     string `key:"identity_file"`
}

// validateTools reports mistakes in [web], [roots], [mcp] and [tools].
func (v validator) validateTools() {
	c := v.cfg
	v.validateWeb(&c.Web)
	for name, r := range Sorted(c.Roots) {
		v.validateRoot(name, r.Path)
	}
	for name, s := range Sorted(c.MCP) {
		v.validateServer(name, s)
	}
	for name, t := range Sorted(c.Tools) {
		if !isTool(c, name) {
			v.report([]string{"tools", name}, noTool(name))
		}
		for key, list := range map[string][]string{"deny_commands": t.DenyCommands,
			"ask_commands": t.AskCommands, "allow_commands": t.AllowCommands} {
			for _, pattern := range list {
				if !isCommand(pattern) {
					v.report([]string{"tools", name, key}, fmt.Sprintf(
						`%q is not a command pattern; want one such as "git status *"`, pattern))
				}
			}
		}
	}
}

// isTool reports whether name is a built-in tool or can be a tool of a configured server. The
// tools of a server are known only while it runs. The rules of a disabled server stay valid.
func isTool(c *Config, name string) bool {
	if slices.Contains(ToolNames(), name) {
		return true
	}
	for server := range c.MCP {
		if tool, ok := strings.CutPrefix(name, ToolPrefix(server)); ok && tool != "" {
			return true
		}
	}
	return false
}

// noTool returns the problem of a tool that does not exist.
func noTool(name string) string {
	return fmt.Sprintf("there is no tool %q; docs/tools.md lists them, and those of [mcp.SERVER] are "+
		"called mcp_SERVER_TOOL%s", name, suggest.Hint(name, ToolNames()))
}

// isCommand reports whether s is a valid command pattern.
func isCommand(s string) bool {
	words := strings.Fields(s)
	return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool {
		_, err := path.Match(w, "")
		return err != nil
	})
}

// validateWeb reports mistakes in [web]. Each search service has other needs: SearXNG an address,
// Brave and Tavily a key.
func (v validator) validateWeb(w *Web) {
	for _, s := range w.AllowNetworks {
		if _, err := netip.ParsePrefix(s); err != nil {
			v.report([]string{"web", "allow_networks"}, fmt.Sprintf(
				`%q is not a network; want one such as "192.168.1.0/24" or "127.0.0.1/32"`, s))
		}
	}
	for _, s := range w.Ports {
		if n, err := strconv.Atoi(s); err != nil || n < 1 || n > 65535 {
			v.report([]string{"web", "ports"}, fmt.Sprintf("%q is not a port", s))
		}
	}
	switch {
	case w.SearchURL != "" && !isHTTP(w.SearchURL):
		v.report([]string{"web", "search_url"}, wantHTTP)
	case w.Search == "searxng" && w.SearchURL == "":
		v.report([]string{"web", "search_url"}, "want the URL of your SearXNG")
	case (w.Search == "brave" || w.Search == "tavily") && w.SearchKey.Reveal() == "":
		v.report([]string{"web", "search_key"}, `want the key, best as "env:NAME" or "file:PATH"`)
	}
}

// validateRoot reports a root that would give the agent access to the gateway's own files.
func (v validator) validateRoot(name, root string) {
	at, home := []string{"roots", name, "path"}, v.cfg.Gateway.Home
	switch {
	case slices.Contains(taken, name):
		v.report([]string{"roots", name}, "the agent has another folder of that name")
	case root == string(filepath.Separator):
		v.report(at, "this is the whole file system, with the gateway's secrets")
	case Within(root, home) || Within(home, root):
		v.report(at, "this is, contains or is in the data directory, which has the gateway's secrets")
	}
}

// taken lists the folders of the agent besides the roots.
var taken = []string{"media", "workspace", "memory", "builtin-skills", "skills", "shared"}

// Within reports whether path is dir or below it.
func Within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// validateServer reports mistakes in [mcp.NAME]. A URL that is still a reference leads nowhere,
// which the resolver has reported.
func (v validator) validateServer(name string, s Server) {
	at := []string{"mcp", name}
	switch {
	case !s.Enabled:
	case len(s.Command) == 0 && s.URL == "":
		v.report(at, "want the command of the server, or its url")
	case len(s.Command) > 0 && s.URL != "":
		v.report(at, "want either a command or a url")
	case s.URL != "" && !isHTTP(s.URL) && !isReference(s.URL):
		v.report(append(at, "url"), wantHTTP)
	case len(s.Command) > 0 && s.Command[0] == "":
		v.report(append(at, "command"), "want a program first")
	}
	if s.Login != "authorization_code" && s.Enabled && s.ClientID == "" {
		v.report(append(at, "client_id"), "want the id of the client, because no person logs in")
	}
	if s.Login == "cross_app_access" && s.Enabled && (s.IdentityFile == "" || !isHTTP(s.IdentityURL)) {
		v.report(append(at, "identity_url"), "want this address, and identity_file")
	}
	if s.Redirect != "" && !isHTTP(s.Redirect) {
		v.report(append(at, "redirect"), wantHTTP)
	}
	for _, host := range s.LoginHosts {
		if u, err := url.Parse("http://" + host); err != nil || u.Host != host || u.Hostname() == "" {
			v.report(append(at, "login_hosts"), "want hosts, such as localhost:8080")
		}
	}
}
