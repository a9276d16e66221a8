// Package mcp turns servers of the Model Context Protocol into tools.
//
// A [Client] keeps a connection to each configured [Server]: a process that it starts, or an
// endpoint of streamable HTTP. It gives the server's tools, resources and prompts to the agent
// under names like mcp_<server>_<tool>. Servers start concurrently and never delay the caller of
// [Client.Run]. The client ends an unused process after a while, and starts it again for the next
// call. In between, the agent keeps the tools that the server had last.
//
// Everything from a server is foreign text: the package changes names to fit, cuts descriptions,
// checks schemas and repairs or refuses them, and marks results. A server may say that a tool is
// read-only or idempotent. This hint decides only which calls a resumed turn repeats and which
// calls run concurrently, never who may use a tool. Servers get nothing from the gateway: no roots,
// no sampling, and only the environment that [Environ] returns. During a call they may ask the
// person whose turn makes the call for values, or to open a link.
//
// The package owns the files NAME.json and NAME.login in the directory Options.Cache. It has no
// database tables.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/agent/llm"
	"gateway/agent/tool"
	"gateway/bus"
)

// A Server is a configured server: a command or the URL of an endpoint.
type Server struct {
	Name    string            // at most 32 letters, digits, "_" and "-"; unique
	Command []string          // server that uses standard input and output
	Env     map[string]string // added to what Environ returns; secrets
	Dir     string            // working directory; "" is that of the gateway
	URL     string            // endpoint of streamable HTTP
	Header  map[string]string // for requests to the URL's host; secrets
	OAuth   OAuth             // how to log in, if the server requires it
	HTTP    *http.Client      // for the URL; nil is Options.HTTP

	// Allow lists patterns for the server's names of tools; "*" matches anything. "resources" and
	// "prompts" stand for the tools for these. Empty allows all.
	Allow []string

	Timeout  time.Duration // of one call; 0 means 60 s
	Confined bool          // run the command in the sandbox of Options.Command
	MinRole  bus.Role      // who may use the tools; "" means bus.User
}

// Options are the optional parameters of [New].
type Options struct {
	// Set replaces the tools of a source, as [tool.Registry.Set] does. If Set is nil, the tools are
	// discarded.
	Set func(source string, tools []tool.Tool) error

	// Command prepares the process of a server, for example in a sandbox. When ctx ends, the
	// process must end. The client sets the process's input, output and process group, and its
	// environment if Command has set none. If Command is nil, the client runs the command directly
	// and refuses confined ones.
	Command func(ctx context.Context, s Server) (*exec.Cmd, error)

	// HTTP is the client for endpoints without their own client. It decides which addresses may be
	// reached. The package ignores its Timeout, because answers are streams; each call has its own
	// timeout. Nil means a default client.
	HTTP *http.Client

	// Cache is a directory for logins and for the servers' catalogs. With a cached catalog, tools
	// are available at once and processes start only when they are used. "" disables it.
	Cache string

	// Report is called when a server's tools have changed and wait for agreement.
	Report func(ctx context.Context, s State) error

	// Changed is called when the result of [Client.Secrets] has changed. It may be nil.
	Changed func()

	Idle   time.Duration // time until an unused process is ended; 0 means 10 min
	Logger *slog.Logger
	Now    func() time.Time // nil means time.Now

	grace time.Duration // endTime; tests set another value
	start time.Duration // startTimeout; tests set another value
}

// The values of [State.State].
const (
	Connected = "connected"
	Starting  = "starting"
	Idle      = "idle"    // its process starts with the next call
	Waiting   = "waiting" // for the next attempt after an error
)

// A State describes the state of a server.
type State struct {
	Name    string
	State   string // Connected, Starting, Idle or Waiting
	Tools   int
	Refused []string // tools that are left out and why
	Error   string   // why the last attempt or connection ended, or ""; no secrets

	// Held describes changes of the tools that the agent does not see until somebody agrees to
	// them. It quotes the server's descriptions. Code identifies all of them together.
	Held []string
	Code string
}

// A Client connects servers to the agent.
type Client struct {
	servers []*server
}

// New returns a client for servers. If [Server.Check] refuses a server, its State says so.
func New(servers []Server, opts *Options) *Client {
	o := *cmp.Or(opts, new(Options))
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	o.grace = cmp.Or(o.grace, endTime)
	o.start = cmp.Or(o.start, startTimeout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Set == nil {
		o.Set = func(string, []tool.Tool) error { return nil }
	}
	if o.Report == nil {
		o.Report = func(context.Context, State) error { return nil }
	}
	if o.Command == nil {
		o.Command = plainCommand
	}
	o.HTTP = cmp.Or(o.HTTP, &http.Client{})
	c := &Client{}
	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
	}
	for i, s := range servers {
		one := newServer(s, &o, names)
		// The first of several servers with a name works.
		if slices.Contains(names[:i], s.Name) {
			one.problem = fmt.Errorf("two servers are named %q", s.Name)
		}
		c.servers = append(c.servers, one)
	}
	return c
}

// Restore offers the agent the tools that the servers had in an earlier process. Call it before
// turns resume: for a tool that is not known, the gateway can't tell whether it may repeat a call.
func (c *Client) Restore(ctx context.Context) {
	for _, s := range c.servers {
		if s.problem == nil {
			s.restore(ctx)
		}
	}
}

// Run keeps the servers connected until ctx ends. When it returns, all processes and connections
// have ended. Call it only once.
func (c *Client) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, s := range c.servers {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

// States returns the states of the servers, in the order of the configuration.
func (c *Client) States() []State {
	list := make([]State, len(c.servers))
	for i, s := range c.servers {
		list[i] = s.status.show()
	}
	return list
}

// server returns the server with the given name, or an error.
func (c *Client) server(name string) (*server, error) {
	i := slices.IndexFunc(c.servers, func(s *server) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no MCP server %q in the configuration", name)
	}
	return c.servers[i], nil
}

// Login begins a login to a server and returns the link that a person has to open in a browser.
// Within 15 minutes, the address at which the browser arrives must be passed to [Client.Finish].
func (c *Client) Login(ctx context.Context, name string) (string, error) {
	s, err := c.server(name)
	if err != nil {
		return "", err
	}
	return s.login.begin(ctx)
}

// Finish completes the login to which the browser's address belongs, and returns the name of the
// server.
func (c *Client) Finish(ctx context.Context, address string) (name string, err error) {
	for _, s := range c.servers {
		err := s.login.finish(ctx, address)
		if errors.Is(err, errNoLogin) {
			continue
		}
		if err == nil {
			notify(s.status.wanted) // it can connect now
		}
		return s.Name, err
	}
	return "", errNoLogin
}

// Logout deletes the tokens for a server.
func (c *Client) Logout(name string) error {
	s, err := c.server(name)
	if err != nil {
		return err
	}
	return s.login.forget()
}

// Approve gives the present tools of a server to the agent, if code is that of its [State].
func (c *Client) Approve(ctx context.Context, name, code string) error {
	s, err := c.server(name)
	if err != nil {
		return err
	}
	return s.review.approve(ctx, code)
}

// Secrets returns the tokens of all logins, which must never be sent to people or models.
func (c *Client) Secrets() (list []string) {
	for _, s := range c.servers {
		list = append(list, s.login.secrets()...)
	}
	return list
}

// Check returns an error if the configuration of the server is not valid.
func (s Server) Check() error {
	switch {
	case s.Name == "" || len(s.Name) > 32 || s.Name != llm.PlainName(s.Name):
		return fmt.Errorf(`mcp: %q: want a name of at most 32 letters, digits, "_" or "-"`, s.Name)
	case (len(s.Command) == 0) == (s.URL == ""):
		return fmt.Errorf("mcp: %s: want either a command or a URL", s.Name)
	case s.Timeout < 0:
		return fmt.Errorf("mcp: %s: the time-out is negative", s.Name)
	case s.MinRole != "" && !s.MinRole.Valid():
		return fmt.Errorf("mcp: %s: there is no role %q", s.Name, s.MinRole)
	case s.URL == "" && s.Command[0] == "":
		return fmt.Errorf("mcp: %s: the command is empty", s.Name)
	}
	for _, pattern := range s.Allow {
		if _, err := path.Match(flat(pattern), ""); err != nil {
			return fmt.Errorf("mcp: %s: %q is not a pattern", s.Name, pattern)
		}
	}
	if s.URL == "" {
		return nil
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("mcp: %s: want a URL with http or https", s.Name) // it may be secret
	}
	for name, value := range s.Header {
		if name == "" || strings.ContainsAny(name+value, "\r\n\x00") || strings.Contains(name, " ") {
			return fmt.Errorf("mcp: %s: %q can't be a header", s.Name, name)
		}
	}
	return nil
}

// allows reports whether the server's tool name is allowed.
func (s Server) allows(name string) bool {
	return len(s.Allow) == 0 || slices.ContainsFunc(s.Allow, func(pattern string) bool {
		ok, err := path.Match(flat(pattern), flat(name))
		return ok && err == nil
	})
}

// flat replaces the slashes in a name, because path.Match treats them specially.
func flat(name string) string { return strings.ReplaceAll(name, "/", "\x01") }

// plainCommand returns the command of s without a sandbox.
func plainCommand(ctx context.Context, s Server) (*exec.Cmd, error) {
	if s.Confined {
		return nil, errors.New("it must run in the sandbox, and there is none")
	}
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir = s.Dir
	return cmd, nil
}
