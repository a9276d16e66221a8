//go:build otlp

package telemetry

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// A collector takes the spans of turns over HTTP, with the headers that were configured.
func TestCollector(t *testing.T) {
	var mu sync.Mutex
	var sent []byte // Protocol Buffers, in which texts stand as they are
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("request to %s with %v: %v", r.URL, r.Header, err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, body...)
	}))
	defer srv.Close()
	traces, err := OpenTraces(t.Context(), Target{Endpoint: srv.URL + "/", Sample: 1, Name: "gw",
		Headers: map[string]string{"Authorization": "Bearer x"}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	aTurn(t.Context(), traces)
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"invoke_agent gw", "chat main", "execute_tool exec"} {
		if !bytes.Contains(sent, []byte(name)) {
			t.Errorf("the collector did not get %q", name)
		}
	}
	if bytes.Contains(sent, []byte("what the model says")) {
		t.Error("the collector got foreign text")
	}
}
