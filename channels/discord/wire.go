package discord

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// A wire is the network connection of a gateway connection. It can end a session that the library
// would not end, or not fast enough.
type wire struct {
	net.Conn
	lastRead atomic.Int64 // when something was last read, in nanoseconds
	killed   atomic.Bool
	once     sync.Once
	ended    chan struct{} // closed when Write has ended a goroutine of the library
}

// newWire returns a wire on conn. A new connection counts as a sign of life.
func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn, ended: make(chan struct{})}
	w.lastRead.Store(time.Now().UnixNano())
	return w
}

// Read implements [net.Conn].
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.lastRead.Store(time.Now().UnixNano())
	}
	return n, err
}

// Write implements [net.Conn]. After kill, it ends the calling goroutine. That is the library's
// reader: it sees the connection fail, tells the other goroutine to end, writes a close message and
// would then sleep for a second, for a session that is no longer used. Its locks stay locked, so
// the other goroutine blocks if it sends a heartbeat at that very moment.
func (w *wire) Write(p []byte) (int, error) {
	if w.killed.Load() {
		w.once.Do(func() { close(w.ended) })
		runtime.Goexit()
	}
	return w.Conn.Write(p)
}

// idle returns how long nothing has been read.
func (w *wire) idle() time.Duration { return time.Since(time.Unix(0, w.lastRead.Load())) }

// cut closes the connection below the library, which notices that later.
func (s *shard) cut() {
	if w := s.wire.Load(); w != nil {
		_ = w.Close() // it may already be closed
	}
}

// kill closes the connection, and ends the library's goroutines when they notice.
func (s *shard) kill() {
	if w := s.wire.Load(); w != nil {
		w.killed.Store(true)
	}
	s.cut()
}

// end ends an open and settled session, and waits for the library's goroutines.
func (s *shard) end() {
	s.kill()
	s.await()
}

// await waits until the library's goroutines have ended or are about to end.
func (s *shard) await() {
	select {
	case <-s.wire.Load().ended:
	case <-s.dropped: // it was closing anyway
	case <-time.After(endTime):
	}
}

// settle waits until the library has sent its first heartbeat after Open. The library holds a lock
// for that, which would stay locked if the goroutine were ended at that moment.
func (s *shard) settle() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(endTime); time.Now().Before(deadline); <-tick.C {
		ready := false
		if s.dg.TryRLock() {
			ready = s.dg.DataReady // false after a disconnect
			s.dg.RUnlock()
		}
		if ready || len(s.dropped) > 0 {
			return
		}
	}
}

// dialer returns the library's dialer for the gateway. It uses the proxy and dialer of the
// transport, if it has them, and ends with ctx.
func (s *shard) dialer(ctx context.Context) *websocket.Dialer {
	d := &websocket.Dialer{HandshakeTimeout: s.c.opts.OpenTimeout}
	dial := (&net.Dialer{}).DialContext
	if t, ok := s.c.opts.Transport.(*http.Transport); ok {
		if t.DialContext != nil {
			dial = t.DialContext
		}
		d.Proxy, dial = throughProxy(t, dial)
		if t.TLSClientConfig != nil {
			d.TLSClientConfig = t.TLSClientConfig.Clone()
			d.TLSClientConfig.NextProtos = nil // a websocket needs HTTP/1.1
		}
	}
	d.NetDialContext = func(call context.Context, network, address string) (net.Conn, error) {
		// The library dials with a context of its own, which does not know the end of the run.
		call, cancel := context.WithCancel(call)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		conn, err := dial(call, network, address)
		if err != nil {
			return nil, err
		}
		w := newWire(conn)
		s.wire.Store(w)
		// If ctx ended before the wire was stored, nobody could cut it.
		if ctx.Err() != nil {
			s.cut()
		}
		return w, nil
	}
	return d
}

// A dialFunc connects to an address, like the DialContext of [http.Transport].
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// throughProxy returns the proxy of t in a form that the library understands, and dial for it. The
// library knows http:// and socks5:// only. For it an https:// proxy is an http:// proxy, to which
// the returned function connects with TLS. The library always lets a SOCKS proxy look names up.
func throughProxy(
	t *http.Transport, dial dialFunc,
) (func(*http.Request) (*url.URL, error), dialFunc) {
	if t.Proxy == nil {
		return nil, dial
	}
	var secure atomic.Pointer[string] // address of the https:// proxy
	proxy := func(r *http.Request) (*url.URL, error) {
		u, err := t.Proxy(r)
		if err != nil || u == nil {
			return u, err
		}
		known := *u
		switch u.Scheme {
		case "https":
			known.Scheme = "http"
			known.Host = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
			secure.Store(&known.Host)
		case "socks5h":
			known.Scheme = "socks5"
		}
		return &known, nil
	}
	return proxy, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if at := secure.Load(); err != nil || at == nil || *at != address {
			return conn, err
		}
		c := t.TLSClientConfig.Clone()
		if c == nil {
			c = new(tls.Config)
		}
		c.NextProtos = nil // CONNECT is spoken in HTTP/1.1
		if c.ServerName == "" {
			c.ServerName, _, _ = net.SplitHostPort(address)
		}
		encrypted := tls.Client(conn, c)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return encrypted, nil
	}
}

// withContext returns a transport whose requests end when ctx is done.
func withContext(ctx context.Context, next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		call, cancel := context.WithCancel(r.Context())
		context.AfterFunc(ctx, cancel) // only now, because the body is read later
		return next.RoundTrip(r.WithContext(call))
	})
}

// A roundTripper is a function that implements [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
