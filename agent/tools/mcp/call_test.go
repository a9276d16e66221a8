package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/agent/tool"
)

// An error tells whether the connection is lost and whether the request was sent. This decides
// whether the call is made again.
func TestJudge(t *testing.T) {
	t.Parallel()
	dial := &url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}
	tests := []struct {
		name       string
		err        error
		http       bool
		lost, sent bool
	}{
		{"answer", &jsonrpc.Error{Code: -32602, Message: "no session of that name"}, true, false, true},
		{"time", errTimeout, false, false, true},
		{"end", fmt.Errorf("calling: %w", io.EOF), false, true, true},
		{"too long", fmt.Errorf("calling: %w", errLong), false, true, true},
		{"write", fmt.Errorf("calling: %w", &fs.PathError{Err: errors.New("x")}), false, true, true},
		{"unknown content", errors.New("unrecognized content type"), false, false, true},
		{"closed", fmt.Errorf("%w: x", sdk.ErrConnectionClosed), false, true, false},
		{"session", fmt.Errorf("x: %w", sdk.ErrSessionMissing), true, true, false},
		{"of another request", errForgotten, true, true, true},
		{"dial", fmt.Errorf("x: %w", dial), true, true, false},
		{"broken off", &url.Error{Op: "Post", Err: io.EOF}, true, true, true},
	}
	for _, tt := range tests {
		if lost, sent := classify(t.Context(), !tt.http, tt.err); lost != tt.lost || sent != tt.sent {
			t.Errorf("%s: lost %t, sent %t; want %t and %t", tt.name, lost, sent, tt.lost, tt.sent)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if lost, _ := classify(ended, true, io.EOF); lost {
		t.Error("a call that was cancelled ends the connection")
	}
}

// If a server refuses a call, the call is not made again, whichever code the error has.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()
	var code atomic.Int64
	var calls atomic.Int32
	s := sdk.NewServer(&sdk.Implementation{Name: "bank", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "pay", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			calls.Add(1)
			return nil, &jsonrpc.Error{Code: code.Load(), Message: "the account is locked"}
		})
	e := httptest.NewServer(sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	c, box := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL, Timeout: time.Minute})
	awaitState(t, c, Connected)
	for _, n := range []int64{-32001, -32002, -32003, -32004, -32600} {
		code.Store(n)
		calls.Store(0)
		_, err := box.call(t, "mcp_s_pay")
		wantError(t, err, "refuses the call: the account is locked")
		if got := calls.Load(); got != 1 {
			t.Errorf("with code %d the server was asked %d times", n, got)
		}
	}
}

// Only an HTTP response can mean that a login is missing and that nothing was done. An error of a
// tool with the same words does not mean that.
func TestForbiddenByTool(t *testing.T) {
	t.Parallel()
	one := New([]Server{{Name: "s", URL: "https://mcp.example.org"}}, nil).servers[0]
	one.login.locked(func() { one.login.asked = &authChallenge{status: http.StatusForbidden} })
	l := &link{ended: make(chan struct{})}
	err := one.caller.explain(t.Context(), l, &jsonrpc.Error{Code: -32603,
		Message: "the file is written, but its index is Forbidden"}, tool.Once, true)
	wantError(t, err, "the file is written")
	if strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("got error %q", err)
	}
	err = one.caller.explain(t.Context(), l, &jsonrpc.Error{Code: codeRejected,
		Message: "sending: Forbidden"}, tool.Once, true)
	wantError(t, err, "requires a further permission", "nothing was done")
}

// A response body that refusesSession has inspected can still be read completely.
func TestRefusesSession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status          int
		body, challenge string
		want            bool
	}{
		{404, "x", "", true}, {410, "x", "", true}, {400, "no such Session", "", true},
		{400, "bad arguments", "", false}, {200, "session", "", false}, {500, "session", "", false},
		{400, strings.Repeat("x", maxRefusal) + "session", "", false},
		{401, "no such session", "", true}, {401, "who are you?", "", false},
		{401, "log in again: the session is over", "Bearer", false},
	} {
		resp := &http.Response{StatusCode: tt.status, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader(tt.body))}
		if tt.challenge != "" {
			resp.Header.Set("WWW-Authenticate", tt.challenge)
		}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if refusesSession(r, resp) {
			t.Errorf("%d %.20s refuses the session of a request without one", tt.status, tt.body)
		}
		r.Header.Set("Mcp-Session-Id", "1")
		if got := refusesSession(r, resp); got != tt.want {
			t.Errorf("%d %.20s refuses the session: %t, want %t", tt.status, tt.body, got, tt.want)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != tt.body {
			t.Errorf("%d %.20s has become %.20q, %v", tt.status, tt.body, body, err)
		}
	}
}
