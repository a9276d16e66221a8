package wire

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gateway/channels/channeltest"
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

func TestDeadConnection(t *testing.T) {
	channeltest.DeadConnection(t, NewClient().Transport.(*http.Transport))
}
