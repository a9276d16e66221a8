package channeltest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// DeadConnection checks that an HTTP/2 connection is not used again once nothing comes back on it,
// as after a change of the network.
func DeadConnection(t *testing.T, transport *http.Transport) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request,
		) {
			_, _ = io.WriteString(w, r.Proto)
		}))
		_ = srv.Listener.Close() // it is replaced
		srv.Listener, srv.EnableHTTP2 = listener, true
		srv.StartTLS()
		defer srv.Close()
		defer close(listener)
		defer transport.CloseIdleConnections()
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		var dead *atomic.Bool // whether the newest connection is
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			dead = new(atomic.Bool)
			listener <- theirs
			return mute{ours, dead}, nil
		}
		first := get(t, transport)
		dead.Store(true)
		second, third := get(t, transport), get(t, transport)
		if first != "HTTP/2.0" || second != "" || third != "HTTP/2.0" {
			t.Errorf("got %q, on the dead connection %q, and then %q", first, second, third)
		}
	})
}

// get returns the answer of the server behind transport, or "" if none comes within a minute.
func get(t *testing.T, transport *http.Transport) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

// Accept implements [net.Listener].
func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements [net.Listener].
func (p pipes) Close() error { return nil }

// Addr implements [net.Listener].
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A mute connection discards all writes while dead is set.
type mute struct {
	net.Conn
	dead *atomic.Bool
}

// Write implements [net.Conn].
func (m mute) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}
