// Package ops is the gateway's HTTP server for operators and other programs: whether it is alive
// and ready, its metrics and profiles, and the hooks that programs post to.
//
// The main type is [Server]. On a loopback address health and metrics are open to everybody on the
// machine. They must call it by a loopback name and not through a proxy: a web page in a browser
// must not reach it. Profiles, the paths of the operator, and everything on any other address need
// the operator's token, except hooks, which have secrets of their own. [Health] says whether the
// gateway is ready, by a list of [Check]s.
//
// At most 1,024 connections are served at once; further ones wait. A request has a header of 16 KiB
// at most and 30 seconds to arrive.
//
// Files: http.json in the gateway's home, with which the command line finds the server.
package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"gateway/store"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Options are the optional settings of a [Server]. The zero value serves /healthz only.
type Options struct {
	Token   string       // of the operator; default a new one
	Ready   *Health      // what /readyz says; default always ready
	Metrics http.Handler // of /metrics; default there are none
	Hooks   http.Handler // of POST /hooks/{name}; default there are none
	// Operator serves everything below /operator/ to those who have the token; default there is
	// nothing.
	Operator http.Handler

	Retry  time.Duration // how soon an address that is taken is tried again; default 10 s
	Logger *slog.Logger  // default discards
}

// A Server is the HTTP server of one gateway.
type Server struct {
	listen string // host:port
	home   string // where http.json is written
	opts   Options
}

// New returns a Server that listens at an address in the form host:port. The folder home must be
// there.
func New(listen, home string, opts *Options) *Server {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	o.Token = cmp.Or(o.Token, rand.Text())
	o.Ready = cmp.Or(o.Ready, NewHealth())
	o.Retry = cmp.Or(o.Retry, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Server{listen: listen, home: home, opts: o}
}

// The bounds of what is served.
const (
	maxConnections = 1024
	maxHeader      = 16 << 10
	headerTime     = 5 * time.Second
	readTime       = 30 * time.Second
	writeTime      = 90 * time.Second // a profile takes 30 s, if nobody asks for longer
	idleTime       = time.Minute
	shutdownTime   = 5 * time.Second // for requests under way at the end
)

// Run serves until ctx ends. While a loopback address is taken, as by another gateway, it is tried
// again and again, since nothing else depends on it; any other address that can't be listened on is
// an error. When Run returns, no request is under way.
func (s *Server) Run(ctx context.Context) error {
	if err := removeEndpoint(s.home); err != nil { // of a process that was killed
		return err
	}
	l, err := s.open(ctx)
	if l == nil || err != nil {
		return err
	}
	addr := l.Addr().(*net.TCPAddr)
	e := Endpoint{Address: reachable(addr), Token: s.opts.Token, PID: os.Getpid()}
	unlock, err := store.LockSoon(ctx, lockFile(s.home), lockPatience)
	if err != nil {
		return errors.Join(fmt.Errorf("ops: lock endpoint: %w", err), l.Close())
	}
	if err := e.write(s.home); err != nil {
		return errors.Join(err, unlock(), l.Close())
	}
	s.opts.Logger.InfoContext(ctx, "http server listens", "address", addr.String())
	return errors.Join(s.serve(ctx, l, addr), removeEndpoint(s.home), unlock())
}

// open listens. It returns nil if ctx ends before it can.
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
		host, _, _ := net.SplitHostPort(s.listen) // the configuration was checked
		if !isLoopback(host) {
			return nil, fmt.Errorf("http: %w; set another address in [http] listen", err)
		}
		if !told {
			s.opts.Logger.WarnContext(ctx, "http server does not listen yet: free the address, or "+
				"set another one in [http] listen", "address", s.listen, "retry", s.opts.Retry,
				"err", err)
		}
		timer := time.NewTimer(s.opts.Retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil
		case <-timer.C:
		}
	}
}

// serve serves on l until ctx ends.
func (s *Server) serve(ctx context.Context, l net.Listener, addr *net.TCPAddr) error {
	srv := &http.Server{
		Handler: s.handler(addr.IP.IsLoopback()), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		IdleTimeout: idleTime,
		ErrorLog:    slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
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
		_ = srv.Close() // requests that are still under way have had their time
	}
	return group.Wait()
}

// reachable returns the address at which the machine itself reaches a server.
func reachable(addr *net.TCPAddr) string {
	a := *addr
	if a.IP.IsUnspecified() {
		a.IP = net.IPv4(127, 0, 0, 1)
	}
	return a.String()
}

// isLoopback reports whether only this machine reaches a host.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// endpointFile returns where the endpoint of a gateway is written.
func endpointFile(home string) string { return filepath.Join(home, "http.json") }
