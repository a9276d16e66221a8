package mcp

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The client detects an endpoint that speaks only HTTP with SSE, as servers did until 2024. It
// remembers the transport and can reconnect.
func TestSSE(t *testing.T) {
	t.Parallel()
	// The library of the official servers in Go answers with 400.
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusBadRequest} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			testSSE(t, status)
		})
	}
}

// testSSE is TestSSE for an endpoint that answers requests of streamable HTTP with a status.
func testSSE(t *testing.T, status int) {
	server := testServer(t.TempDir())
	old := sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return server }, nil)
	posts := make(chan string, 100)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			t.Error("a request came without its header")
		}
		if r.Method == http.MethodPost && r.URL.RawQuery == "" {
			posts <- r.URL.Path
			http.Error(w, "what is that?", status)
			return
		}
		old.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	opts := &Options{HTTP: web(t), Cache: t.TempDir()}
	s := Server{Name: "s", URL: e.URL + "/sse", Timeout: 30 * time.Second,
		Header: map[string]string{"Authorization": "Bearer sesame"}}
	c, box := run(t, opts, s)
	awaitState(t, c, Connected)
	echo := func(text string) {
		t.Helper()
		if got, err := box.call(t, "mcp_s_echo", "text", text); err != nil || got.Text != text {
			t.Errorf("echo = %q, %v", got.Text, err)
		}
	}
	if got := box.names(); got != allTools {
		t.Fatalf("tools are %s\nwant %s", got, allTools)
	}
	echo("x")
	e.CloseClientConnections()
	await(t, "the connection after it has broken", func() bool {
		got, err := box.call(t, "mcp_s_echo", "text", "y")
		return err == nil && got.Text == "y"
	})
	tried := len(posts)
	if tried == 0 {
		t.Error("streamable HTTP was not tried first")
	}
	again, _ := run(t, opts, s)
	awaitState(t, again, Connected)
	if n := len(posts); n != tried {
		t.Errorf("streamable HTTP was tried %d times more, though there is none", n-tried)
	}
}

// An endpoint with SSE can't redirect the client's messages to another host.
func TestSSEElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request came to another host")
	}))
	t.Cleanup(elsewhere.Close)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if _, err := w.Write([]byte("event: endpoint\ndata: " + elsewhere.URL + "/\n\n")); err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	c, _ := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL})
	awaitState(t, c, Waiting)
}
