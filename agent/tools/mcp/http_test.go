package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gateway/agent/tool"
)

// An endpoint is a server with streamable HTTP whose process can be replaced by a new one.
type endpoint struct {
	*httptest.Server
	handler atomic.Pointer[http.Handler]
	server  *sdk.Server
	down    atomic.Bool
	auth    sync.Map // the values of the Authorization headers that the endpoint got
}

// A kind is the version of the protocol that an endpoint speaks, and whether it follows it.
type kind string

const (
	stateless kind = "without sessions"
	stateful  kind = "with sessions"
	careless  kind = "with sessions and status 400 for those it does not know"
	denying   kind = "with sessions and status 401 for those it does not know"
	wary      kind = "with sessions and a challenge for those it does not know"
	gone      kind = "with sessions and status 410 for those it does not know"
)

// refusals are the responses of endpoints with the wrong status for a session that they do not
// know: those of the examples for TypeScript, of older libraries for Rust and for TypeScript, and
// of proxies.
var refusals = map[kind]struct {
	status     int
	kind, body string
}{
	careless: {http.StatusBadRequest, "application/json", `{"jsonrpc":"2.0","id":null,` +
		`"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`},
	denying: {http.StatusUnauthorized, "text/plain", "Unauthorized: Session not found"},
	wary:    {http.StatusUnauthorized, "text/plain", "Unauthorized"},
	gone:    {http.StatusGone, "text/plain", "it is over"},
}

func newEndpoint(t *testing.T, k kind) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.restart(t, k)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.auth.Store(r.Header.Get("Authorization"), true)
		if e.down.Load() {
			http.Error(w, "gone for lunch, "+r.Header.Get("Authorization"), http.StatusBadGateway)
			return
		}
		(*e.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
		e.forget()
	})
	return e
}

// forget ends all sessions.
func (e *endpoint) forget() {
	for s := range e.server.Sessions() {
		_ = s.Close() // the client may have closed it
	}
}

// restart replaces the server with a new one.
func (e *endpoint) restart(t *testing.T, k kind) {
	server := testServer(t.TempDir())
	var h http.Handler = sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return server }, nil)
	if k != stateless {
		inner := h
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Protocol-Version") > legacyVersion {
				http.Error(w, "what is that?", http.StatusBadRequest)
				return
			}
			id := r.Header.Get("Mcp-Session-Id")
			known := slices.ContainsFunc(slices.Collect(server.Sessions()),
				func(s *sdk.ServerSession) bool { return s.ID() == id })
			refusal, wrong := refusals[k]
			if wrong && id != "" && !known && r.Method == http.MethodPost {
				w.Header().Set("Content-Type", refusal.kind)
				if k == wary {
					w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
				}
				w.WriteHeader(refusal.status)
				fmt.Fprint(w, refusal.body)
				return
			}
			inner.ServeHTTP(w, r)
		})
	}
	e.handler.Store(&h)
	if e.server != nil {
		e.forget()
	}
	e.server = server
}

// web returns a client whose connections are closed when the test ends.
func web(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Nanosecond} // the timeout is not used
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{stateless, stateful, careless} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, k)
			s := Server{Name: "s", URL: e.URL, Header: map[string]string{"Authorization": "Bearer sesame"},
				Timeout: 30 * time.Second}
			c, box := run(t, &Options{HTTP: web(t)}, s)
			awaitState(t, c, Connected)
			if got := box.names(); got != allTools {
				t.Fatalf("tools are %s\nwant %s", got, allTools)
			}
			if got, err := box.call(t, "mcp_s_echo", "text", "x"); err != nil || got.Text != "x" {
				t.Errorf("echo = %q, %v", got.Text, err)
			}
			got, err := box.call(t, "mcp_s_big", "n", 1<<20)
			if err != nil || len(got.Text) < 1_000_000 {
				t.Errorf("1 MiB is %d bytes, %v", len(got.Text), err)
			}
			if _, err := box.call(t, "mcp_s_more"); err != nil {
				t.Fatal(err)
			}
			agreeToNew(t, c, box)
			e.restart(t, k)
			if got, err := box.call(t, "mcp_s_echo", "text", "y"); err != nil || got.Text != "y" {
				t.Errorf("echo after a restart of the server = %q, %v", got.Text, err)
			}
			if _, without := e.auth.Load(""); without {
				t.Error("a request came without its header")
			}
		})
	}
}

// A call whose session the endpoint does not know is made again, even if it must not run twice,
// because it has done nothing. This also holds if the end of the connection arrives before the
// call's own error.
func TestRefusedSession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind      kind
		overtaken bool
	}{{stateful, false}, {stateful, true}, {careless, false}, {denying, false},
		{wary, false}, {gone, false}} {
		e := newEndpoint(t, tt.kind)
		c, _ := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL})
		awaitState(t, c, Connected)
		e.restart(t, tt.kind)
		calls := 0
		err := c.servers[0].caller.use(t.Context(), tool.Once, func(
			ctx context.Context, session *sdk.ClientSession,
		) error {
			calls++
			_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "count"})
			if err != nil && tt.overtaken {
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		})
		if err != nil || calls != 2 {
			t.Errorf("an endpoint %s, overtaken %t: %d calls, %v; want 2", tt.kind, tt.overtaken,
				calls, err)
		}
		if why := c.servers[0].login.problem(); why != "" && tt.kind != wary {
			t.Errorf("an endpoint %s: %s", tt.kind, why)
		}
	}
}

// An endpoint that requires a login for one tool, and says so in a message of the protocol, refuses
// only the calls of this tool. Other calls on the same connection go on.
func TestLoginForOneTool(t *testing.T) {
	t.Parallel()
	var sessions, refused atomic.Int32
	e := newEndpoint(t, stateful)
	inner := *e.handler.Load()
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an incomplete body is not a call
		r.Body = io.NopCloser(bytes.NewReader(body))
		var call struct {
			ID any `json:"id"`
		}
		switch {
		case bytes.Contains(body, []byte(`"count"`)) && json.Unmarshal(body, &call) == nil:
			refused.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%v,"error":{"code":-32000,"message":"log in"}}`,
				call.ID)
			return
		case bytes.Contains(body, []byte(`"initialize"`)):
			sessions.Add(1)
		}
		inner.ServeHTTP(w, r)
	})
	e.handler.Store(&h)
	c, box := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL})
	awaitState(t, c, Connected)
	err := c.servers[0].caller.use(t.Context(), tool.Once, func(
		ctx context.Context, _ *sdk.ClientSession,
	) error {
		_, err := box.call(t, "mcp_s_count")
		wantError(t, err, "the MCP server s refuses the call: ", "log in")
		return ctx.Err()
	})
	if err != nil || sessions.Load() != 1 || refused.Load() != 1 {
		t.Errorf("the other call got %v; %d sessions, %d refusals; want 1 of both", err,
			sessions.Load(), refused.Load())
	}
}

// The endpoint, or a proxy, may close the stream of notifications whenever it likes. Calls go on.
func TestClosedStream(t *testing.T) {
	t.Parallel()
	var streams atomic.Int32
	e := newEndpoint(t, stateful)
	inner := *e.handler.Load()
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			inner.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": ping\n\n")
		streams.Add(1)
	})
	e.handler.Store(&h)
	c, _ := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL})
	awaitState(t, c, Connected)
	err := c.servers[0].caller.use(t.Context(), tool.Once, func(
		ctx context.Context, _ *sdk.ClientSession,
	) error {
		for streams.Load() < 4 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("the call failed after %d streams: %v", streams.Load(), err)
	}
}

// The endpoint may forget the session during a call, and the stream of notifications may notice
// it first. Then the call is made again if running it twice does no harm.
func TestForgottenUnderway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		effect tool.Effect
		calls  int
	}{{tool.Once, 1}, {tool.Idempotent, 2}, {tool.Pure, 2}} {
		t.Run(fmt.Sprint("effect ", tt.effect), func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, stateful)
			c, _ := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL})
			awaitState(t, c, Connected)
			calls := 0
			err := c.servers[0].caller.use(t.Context(), tt.effect, func(
				ctx context.Context, session *sdk.ClientSession,
			) error {
				if calls++; calls == 2 {
					return nil
				}
				e.restart(t, stateful)
				<-ctx.Done()
				return ctx.Err()
			})
			if calls != tt.calls || err == nil != (tt.calls == 2) {
				t.Errorf("%s: %d calls, %v; want %d", tt.effect, calls, err, tt.calls)
			}
		})
	}
}

// If an endpoint accepts a call and forgets the session before it answers, the call may have run.
// This holds for each request that notices the loss.
func TestForgottenAfterwards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		effect tool.Effect
		calls  int32
	}{{tool.Once, 1}, {tool.Idempotent, 2}, {tool.Pure, 2}} {
		e := newEndpoint(t, stateful)
		c, _ := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL})
		awaitState(t, c, Connected)
		var calls atomic.Int32
		inner := *e.handler.Load()
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // an incomplete body is not a call
			r.Body = io.NopCloser(bytes.NewReader(body))
			switch {
			case r.Header.Get("Last-Event-Id") != "":
				http.NotFound(w, r)
			case bytes.Contains(body, []byte("tools/call")) && calls.Add(1) == 1:
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "id: 1\nretry: 1\ndata:\n\n") // the answer would come later
			default:
				inner.ServeHTTP(w, r)
			}
		})
		e.handler.Store(&h)
		err := c.servers[0].caller.use(t.Context(), tt.effect, func(
			ctx context.Context, session *sdk.ClientSession,
		) error {
			_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "count"})
			return err
		})
		if got := calls.Load(); got != tt.calls || err == nil != (tt.calls == 2) {
			t.Errorf("%s: %d calls, %v; want %d", tt.effect, got, err, tt.calls)
		}
		if tt.effect == tool.Once {
			wantError(t, err, "ended during the call", "not known whether it took effect")
		}
	}
}

func TestHTTPDown(t *testing.T) {
	t.Parallel()
	var logged syncBuffer
	e := newEndpoint(t, stateless)
	s := Server{Name: "s", URL: e.URL + "/path?token=querysecret", Timeout: 20 * time.Second,
		Header: map[string]string{"Authorization": "Bearer sesame-open"}}
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, box := run(t, &Options{HTTP: web(t), Logger: log}, s)
	awaitState(t, c, Connected)
	e.down.Store(true)
	_, err := box.call(t, "mcp_s_count")
	wantError(t, err, "the MCP server s", "Bad Gateway", "can be tried again")
	e.down.Store(false)
	if got, err := box.call(t, "mcp_s_echo", "text", "y"); err != nil || got.Text != "y" {
		t.Errorf("echo = %q, %v", got.Text, err)
	}
	e.CloseClientConnections()
	e.Listener.Close()
	_, err = box.call(t, "mcp_s_count") // the call may arrive while the endpoint is closing
	wantError(t, err, "the MCP server s")
	_, err = box.call(t, "mcp_s_count")
	wantError(t, err, "the MCP server s is not connected", "refused", "nothing was done")
	awaitState(t, c, Waiting)
	for what, text := range map[string]string{"error": err.Error(), "log": logged.String(),
		"state": fmt.Sprint(c.States())} {
		if strings.Contains(text, "sesame") || strings.Contains(text, "querysecret") {
			t.Errorf("the %s shows a secret: %s", what, text)
		}
	}
}

// A redirect to another host gets no secret headers.
func TestRedirect(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, stateless)
	from := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, e.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(from.Close)
	c, _ := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: from.URL,
		Header: map[string]string{"Authorization": "Bearer sesame", "X-Key": "sesame"}})
	awaitState(t, c, Connected)
	if _, leaked := e.auth.Load("Bearer sesame"); leaked {
		t.Error("the header went to another host")
	}
}

// An endpoint that never answers, or that answers without end, does not delay other servers.
func TestHTTPHang(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}))
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 40 {
			if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(func() {
		close(stop)
		silent.CloseClientConnections()
		silent.Close()
		endless.Close()
	})
	e := newEndpoint(t, stateless)
	c, box := run(t, &Options{HTTP: web(t)}, Server{Name: "silent", URL: silent.URL},
		Server{Name: "endless", URL: endless.URL}, Server{Name: "s", URL: e.URL})
	await(t, "the server that works", func() bool { return c.States()[2].State == Connected })
	if got, err := box.call(t, "mcp_s_echo", "text", "x"); err != nil || got.Text != "x" {
		t.Errorf("echo = %q, %v", got.Text, err)
	}
	await(t, "the end of the endless one", func() bool { return c.States()[1].State == Waiting })
	if got := c.States()[1].Error; !strings.Contains(got, "more than 16777216 bytes") {
		t.Errorf("the endless one has the error %q", got)
	}
}

// A call without an answer is cancelled, and the connection stays usable.
func TestHTTPCallHangs(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, stateful)
	c, box := run(t, &Options{HTTP: web(t)},
		Server{Name: "s", URL: e.URL, Timeout: 2 * time.Second})
	awaitState(t, c, Connected)
	_, err := box.call(t, "mcp_s_sleep")
	wantError(t, err, "has not answered within 2s")
	awaitEcho(t, box)
}

// A syncBuffer is a buffer for concurrent writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// If an endpoint requires something that the client does not do, the state of the server explains
// it and says what helps.
func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusUnauthorized: "it requires a login. An admin sends /mcp login s",
		http.StatusNotFound:     "there is no endpoint of the protocol at this URL",
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://h/.well-known/x"`)
				http.Error(w, "no", status)
			}))
			t.Cleanup(e.Close)
			c, _ := run(t, &Options{HTTP: web(t)}, Server{Name: "s", URL: e.URL, Timeout: time.Minute})
			awaitState(t, c, Waiting)
			if got := c.States()[0].Error; !strings.Contains(got, want) {
				t.Errorf("the state says %q, want %q", got, want)
			}
		})
	}
}
