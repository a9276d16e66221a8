package wire

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests of any size arrive complete, also one after another on the same connection.
func TestLargeRequests(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = w.Write(body)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	c := NewClient()
	defer c.CloseIdleConnections()
	for _, size := range []int{0, 1, 4 << 10, 32 << 10, 1 << 20, 10} {
		body := strings.Repeat("0123456789", size/10+1)[:size]
		resp, err := c.Post(srv.URL, "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != body {
			t.Errorf("of %d bytes %d have come back, %v", size, len(got), err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkLargeRequest(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer srv.Close()
	c := NewClient()
	defer c.CloseIdleConnections()
	body := strings.Repeat("0123456789", 2500)
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), "POST", srv.URL,
			struct{ io.Reader }{strings.NewReader(body)}) // hides the other methods of the reader
		if err != nil {
			b.Fatal(err)
		}
		req.ContentLength = int64(len(body))
		resp, err := c.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			b.Error(err)
		}
	}
}

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A mute connection loses what is written to it once it is dead.
type mute struct {
	net.Conn
	dead *atomic.Bool
}

func (m mute) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// After the network has changed, nothing comes back on a connection. With HTTP/2 it would be used
// again for each call.
func TestDeadConnection(t *testing.T) {
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
		client := NewClient()
		transport := client.Transport.(*http.Transport)
		defer transport.CloseIdleConnections()
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		var dead *atomic.Bool // whether the newest connection is
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			dead = new(atomic.Bool)
			listener <- theirs
			return mute{ours, dead}, nil
		}
		get := func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://model.test", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				return "an error"
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		first := get()
		dead.Store(true)
		second, third := get(), get()
		if first != "HTTP/2.0" || second != "an error" || third != "HTTP/2.0" {
			t.Errorf("got %q, on the dead connection %q, and then %q", first, second, third)
		}
	})
}
