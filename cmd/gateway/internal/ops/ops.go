// Package ops is the gateway's HTTP server for operators and other programs. It serves health,
// metrics and profiles, and receives posts to hooks.
//
// The main type is [Server]. On a loopback address, everybody on the machine can read health and
// metrics. Their requests must use a loopback name and no proxy, so that web pages in a browser
// can't read them. Profiles, the operator's paths, and everything on any other address need the
// operator's token. Hooks don't: they have secrets of their own. [Health] decides with a list of
// [Check]s whether the gateway is ready.
//
// The server serves at most 1,024 connections at once; further ones wait. A connection is for one
// request. A request header has at most 16 KiB. A request must arrive within 30 seconds.
//
// Files: http.json in the gateway's home. The command line finds the server with it.
package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"gateway/store"
	"gateway/store/atomicfile"
)

// Options are the optional settings of a [Server]. The zero value serves /healthz only.
type Options struct {
	Token   string       // the operator's token; default: a new one
	Ready   *Health      // result of /readyz; default: always ready
	Metrics http.Handler // handler of /metrics; default: none
	Hooks   http.Handler // handler of POST /hooks/{name}; default: none
	// Operator serves the paths below /operator/ to callers with the token. Default: none.
	Operator http.Handler

	Retry  time.Duration // pause before retrying an address in use; default: 10 s
	Logger *slog.Logger  // default: discards
}

// A Server is the HTTP server of one gateway.
type Server struct {
	listen string // host:port
	home   string // folder of http.json
	opts   Options
}

// New returns a Server that listens on an address host:port. The folder home must exist.
func New(listen, home string, opts *Options) *Server {
	o := *cmp.Or(opts, new(Options))
	o.Token = cmp.Or(o.Token, rand.Text())
	o.Ready = cmp.Or(o.Ready, NewHealth())
	o.Retry = cmp.Or(o.Retry, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Server{listen: listen, home: home, opts: o}
}

// Limits of the server.
const (
	maxConnections = 1024
	maxHeader      = 16 << 10
	headerTime     = 5 * time.Second
	readTime       = 30 * time.Second
	writeTime      = 90 * time.Second // a profile takes 30 s by default
	shutdownTime   = 5 * time.Second  // for requests in progress at the end
)

// Run serves until ctx ends. If a loopback address is in use, for example by another gateway, Run
// logs a warning and retries, since nothing else depends on the server. Any other address that it
// can't listen on is an error. When Run returns, no request is in progress.
func (s *Server) Run(ctx context.Context) error {
	if err := removeEndpoint(s.home); err != nil { // left by a killed process
		return err
	}
	l, err := s.open(ctx)
	if l == nil || err != nil {
		return err
	}
	addr := l.Addr().(*net.TCPAddr)
	e := Endpoint{Address: reachable(addr), Token: s.opts.Token, PID: os.Getpid()}
	unlock, err := store.LockWithin(ctx, lockFile(s.home), lockPatience)
	if err != nil {
		return errors.Join(fmt.Errorf("ops: lock endpoint: %w", err), l.Close())
	}
	if err := e.write(s.home); err != nil {
		return errors.Join(err, unlock(), l.Close())
	}
	s.opts.Logger.InfoContext(ctx, "http server listens", "address", addr.String())
	return errors.Join(s.serve(ctx, l, addr), removeEndpoint(s.home), unlock())
}

// open listens. It returns nil, nil if ctx ends first.
func (s *Server) open(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	for told := false; ; told = true {
		l, err := config.Listen(ctx, "tcp", s.listen)
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		host, _, _ := net.SplitHostPort(s.listen) // the configuration was validated
		if !IsLoopback(host) {
			return nil, fmt.Errorf("http: %w; set another address in [http] listen", err)
		}
		if !told {
			s.opts.Logger.WarnContext(ctx, "http server does not listen yet: free the address, or "+
				"set another one in [http] listen", "address", s.listen, "retry", s.opts.Retry,
				"err", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(s.opts.Retry):
		}
	}
}

// serve serves on l until ctx ends.
func (s *Server) serve(ctx context.Context, l net.Listener, addr *net.TCPAddr) error {
	srv := &http.Server{
		Handler: s.handler(addr.IP.IsLoopback()), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		ErrorLog: slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	// Otherwise strangers could take all connections with requests that are refused.
	srv.SetKeepAlivesEnabled(false)
	var group errgroup.Group
	ended := make(chan struct{})
	group.Go(func() error {
		defer close(ended)
		err := srv.Serve(netutil.LimitListener(l, maxConnections))
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("http: serve %s: %w", addr, err)
	})
	select {
	case <-ctx.Done():
	case <-ended:
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if srv.Shutdown(last) != nil {
		_ = srv.Close() // requests in progress have had shutdownTime
	}
	return group.Wait()
}

// reachable returns the address at which this machine reaches the server.
func reachable(addr *net.TCPAddr) string {
	a := *addr
	if a.IP.IsUnspecified() {
		a.IP = net.IPv4(127, 0, 0, 1)
	}
	return a.String()
}

// IsLoopback reports whether a host is reachable only from this machine.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}

// endpointFile returns the path of the endpoint file in home.
func endpointFile(home string) string { return filepath.Join(home, "http.json") }

// An Endpoint tells the command line how to reach the HTTP server of a running gateway.
type Endpoint struct {
	Address string `json:"address"` // host:port
	Token   string `json:"token"`   // the operator's token
	PID     int    `json:"pid"`     // process id of the gateway
}

// lockPatience is how long a server waits for its lock. A command may hold the lock for a moment.
const lockPatience = 2 * time.Second

// lockFile returns the file that a server locks while it listens. A killed gateway leaves its
// endpoint behind, and another program may use its address by then. The lock tells whether the
// endpoint is still valid, so that no command sends the token to another program.
func lockFile(home string) string { return filepath.Join(home, "http.lock") }

// ReadEndpoint returns the endpoint of the gateway in home. If no gateway runs or its server does
// not listen, the error is [fs.ErrNotExist], and the Endpoint has the Address that was left
// behind, if any.
func ReadEndpoint(home string) (Endpoint, error) {
	var e Endpoint
	text, err := os.ReadFile(endpointFile(home))
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("ops: read endpoint: %w", err)
	}
	if isFree(lockFile(home)) {
		return Endpoint{Address: e.Address},
			fmt.Errorf("ops: read endpoint: it was left behind: %w", fs.ErrNotExist)
	}
	return e, nil
}

// isFree reports whether a lock file exists and no process holds the lock. A gateway of an
// earlier version has no lock file.
func isFree(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	unlock, err := store.Lock(path)
	return err == nil && unlock() == nil
}

// write replaces the endpoint file in home atomically. Only this user can read it.
func (e Endpoint) write(home string) error {
	text, err := json.Marshal(e)
	if err == nil {
		err = atomicfile.WritePath(endpointFile(home), append(text, '\n'), 0o600)
	}
	return store.Wrap(err, "ops: write endpoint")
}

func removeEndpoint(home string) error {
	err := os.Remove(endpointFile(home))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ops: remove endpoint: %w", err)
	}
	return nil
}
