package hooks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A post whose body does not arrive in time is refused and adds no message.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 50*time.Millisecond, Hook{Name: "b", Secret: secret})
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /hooks/b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Length: 10\r\n\r\nhalf", secret)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // until the server closes the connection
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 408 ")) {
		t.Errorf("answer = %q, %v; want 408 and the end", answer, err)
	}
	if n := len(w.messages()); n > 0 {
		t.Errorf("%d messages, want none", n)
	}
}

// Slow posts take the places of one hook only, and free them afterwards.
func TestPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour, // the test ends this time by closing over
		Hook{Name: "h", Secret: secret, Auth: HMAC, Header: "X-Signature"},
		Hook{Name: "b", Secret: secret})
	over := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hooks/{name}", func(rw http.ResponseWriter, r *http.Request) {
		w.handler.ServeHTTP(&expiringWriter{rw, r, over}, r)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	w.url = srv.URL
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 2 * maxReading {
		wg.Go(func() {
			body, hold := io.Pipe()
			defer hold.Close()
			req, err := http.NewRequestWithContext(ctx, "POST", w.url+"/hooks/h", body)
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
				if c := resp.StatusCode; c != http.StatusRequestTimeout && c != 503 && c != 401 {
					t.Errorf("answer = %d, want 408, or 503 for want of a place", c)
				}
			}
		})
	}
	w.held("h", nil)
	w.take(bearer("b", "text/plain", "another hook"))
	close(over)
	wg.Wait()
	w.take(signed("h", `{}`))
}

// An expiringWriter ends the time for the body of a slow post when the test closes over.
type expiringWriter struct {
	http.ResponseWriter
	r    *http.Request
	over chan struct{}
}

func (h *expiringWriter) SetReadDeadline(at time.Time) error {
	control := http.NewResponseController(h.ResponseWriter)
	if slow := h.r.ContentLength < 0; slow && time.Now().Before(at) {
		go func() {
			select {
			case <-h.over:
				_ = control.SetReadDeadline(time.Unix(1, 0)) // an error means that the post has ended
			case <-h.r.Context().Done():
			}
		}()
	}
	return control.SetReadDeadline(at)
}
