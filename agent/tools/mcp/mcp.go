// Package mcp makes tools of servers that speak the Model Context Protocol.
//
// A [Client] keeps the connection to each configured [Server], a process that it starts or an
// endpoint of streamable HTTP, and gives the server's tools, resources and prompts to the agent,
// named mcp_<server>_<tool>. Servers start beside each other and never hold up who calls
// [Client.Run]. A process that nobody has used for a while is ended, and started again by the next
// call; the tools stay, as they were last seen.
//
// Whatever a server says is foreign text: names are mended, descriptions cut, schemas checked and
// mended or refused, results marked. A server's own word on what its tools do (read-only,
// idempotent) is a hint that decides only what a resumed turn runs again and what runs side by
// side; never who may use a tool. Servers get nothing from us: no roots, no sampling, no
// elicitation, and of the gateway's environment only what [Environ] names.
//
// The package owns the files NAME.json and NAME.login in the directory Options.Cache, and no
// tables.
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
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"gateway/agent/tool"
	"gateway/bus"
)

// A Server is one configured server: a command, or the URL of an endpoint.
type Server struct {
	Name    string            // at most 32 letters, digits, "_" and "-"; unique
	Command []string          // of a server that speaks over its standard input and output
	Env     map[string]string // of the command, beside what Environ gives to all; secrets
	Dir     string            // where the command runs; "" is where the gateway does
	URL     string            // of a server that speaks streamable HTTP
	Header  map[string]string // of each request to the URL's host; secrets
	OAuth   OAuth             // how to log in to the URL, if it wants that
	HTTP    *http.Client      // reaches the URL; nil is Options.HTTP

	// Allow has patterns of the names of tools, as the server calls them, in which "*" stands for
	// anything; "resources" and "prompts" are the tools for these. Empty allows all.
	Allow []string

	Timeout  time.Duration // of one call; 0 is 60 s
	Confined bool          // the command must run in the sandbox, which Options.Command knows
	Least    bus.Role      // who may use the tools; "" is bus.User
}

// Options are the optional parameters of [New].
type Options struct {
	// Set replaces the tools of a source, as [tool.Registry.Set] does. Nil drops them.
	Set func(source string, tools []tool.Tool) error

	// Command prepares the process of a server, for instance inside a sandbox. Its ctx ends when
	// the process must be gone. The client sets the process's input, output and group, and its
	// environment if there is none. Nil runs the command as it is, and refuses a confined one.
	Command func(ctx context.Context, s Server) (*exec.Cmd, error)

	// HTTP reaches the endpoints that have no client of their own; it decides which addresses may
	// be. Its Timeout is not used, because answers are streams; each call has a time-out of its own.
	// Nil is a usual client.
	HTTP *http.Client

	// Cache is a directory for logins, and for what servers have, so that their tools are there at
	// once and processes start only when they are used. "" keeps nothing.
	Cache string

	// Report is called when a server's tools have changed and wait for somebody's agreement.
	Report func(ctx context.Context, s State) error

	// Changed is called after each change of what [Client.Secrets] returns. Nil is nobody.
	Changed func()

	Idle   time.Duration // after which an unused process is ended; 0 is 10 min
	Logger *slog.Logger
	Now    func() time.Time // nil is time.Now
}

// The names of states.
const (
	Connected = "connected"
	Starting  = "starting"
	Idle      = "idle"    // its process starts when a tool is used
	Waiting   = "waiting" // for the next attempt, after an error
)

// A State says how a server is.
type State struct {
	Name    string
	State   string // Connected, Starting, Idle or Waiting
	Tools   int
	Refused []string  // tools that are left out and why, in plain words
	Error   string    // why the last attempt or connection ended, or ""; without secrets
	Since   time.Time // of the state

	// Held are changes of the tools that the agent does not see until somebody agrees to them, in
	// plain words with what the server says; Code stands for all of them.
	Held []string
	Code string
}

// A Client connects servers and the agent.
type Client struct {
	servers []*server
}

// New returns a client of servers. One that [Server.Check] refuses shows so in the states.
func New(servers []Server, opts *Options) *Client {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Command == nil {
		o.Command = plainCommand
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{}
	}
	c := &Client{}
	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
	}
	for i, s := range servers {
		one := newServer(s, &o, names)
		if slices.Contains(names[:i], s.Name) {
			one.problem = fmt.Errorf("two servers are named %q", s.Name)
		}
		c.servers = append(c.servers, one)
	}
	return c
}

// Run keeps the servers connected until ctx ends. It owns all processes and connections: when it
// returns, none is left. It may be called once.
func (c *Client) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, s := range c.servers {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

// States returns how the servers are, in the order of their configuration.
func (c *Client) States() []State {
	list := make([]State, len(c.servers))
	for i, s := range c.servers {
		list[i] = s.show()
	}
	return list
}

// server returns the server with a name.
func (c *Client) server(name string) (*server, error) {
	i := slices.IndexFunc(c.servers, func(s *server) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no MCP server %q in the configuration", name)
	}
	return c.servers[i], nil
}

// Login begins a login to a server and returns the link that a person has to open in a browser.
// What the browser's address is at the end is for [Client.Finish], within a quarter of an hour.
func (c *Client) Login(ctx context.Context, name string) (string, error) {
	s, err := c.server(name)
	if err != nil {
		return "", err
	}
	return s.login.begin(ctx)
}

// Finish ends the login whose browser has ended at an address, and returns the server's name.
func (c *Client) Finish(ctx context.Context, address string) (name string, err error) {
	for _, s := range c.servers {
		err := s.login.finish(ctx, address)
		if errors.Is(err, errNoLogin) {
			continue
		}
		if err == nil {
			select {
			case s.wanted <- struct{}{}: // it need not wait any more
			default:
			}
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

// Agree lets the agent have the tools of a server as they are now, if the code is that of its
// state.
func (c *Client) Agree(ctx context.Context, name, code string) error {
	s, err := c.server(name)
	if err != nil {
		return err
	}
	return holder{s}.agree(ctx, code)
}

// Secrets returns the tokens of all logins. They must never be sent.
func (c *Client) Secrets() (list []string) {
	for _, s := range c.servers {
		list = append(list, s.login.secrets()...)
	}
	return list
}

var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Check returns what is wrong with a server's configuration, or nil.
func (s Server) Check() error {
	switch {
	case !serverName.MatchString(s.Name):
		return fmt.Errorf(`mcp: %q: want a name of at most 32 letters, digits, "_" or "-"`, s.Name)
	case (len(s.Command) == 0) == (s.URL == ""):
		return fmt.Errorf("mcp: %s: want either a command or a URL", s.Name)
	case s.Timeout < 0:
		return fmt.Errorf("mcp: %s: the time-out is negative", s.Name)
	case s.Least != "" && !s.Least.Valid():
		return fmt.Errorf("mcp: %s: there is no role %q", s.Name, s.Least)
	case s.URL == "" && s.Command[0] == "":
		return fmt.Errorf("mcp: %s: the command is empty", s.Name)
	}
	for _, pattern := range s.Allow {
		if _, err := path.Match(flat(pattern), ""); err != nil {
			return fmt.Errorf("mcp: %s: %q is not a pattern", s.Name, pattern)
		}
	}
	if s.URL != "" {
		return s.checkURL()
	}
	return nil
}

func (s Server) checkURL() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("mcp: %s: want a URL with http or https", s.Name) // it may have a secret
	}
	for name, value := range s.Header {
		if name == "" || strings.ContainsAny(name+value, "\r\n\x00") || strings.Contains(name, " ") {
			return fmt.Errorf("mcp: %s: %q can't be a header", s.Name, name)
		}
	}
	return nil
}

// allows reports whether the tool that the server calls name is wanted.
func (s Server) allows(name string) bool {
	return len(s.Allow) == 0 || slices.ContainsFunc(s.Allow, func(pattern string) bool {
		ok, err := path.Match(flat(pattern), flat(name))
		return ok && err == nil
	})
}

// flat hides the slashes of a name from path.Match, to which they are special.
func flat(name string) string { return strings.ReplaceAll(name, "/", "\x01") }

// plainCommand runs the command of s as it is.
func plainCommand(ctx context.Context, s Server) (*exec.Cmd, error) {
	if s.Confined {
		return nil, errors.New("it must run in the sandbox, and there is none")
	}
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir = s.Dir
	return cmd, nil
}
