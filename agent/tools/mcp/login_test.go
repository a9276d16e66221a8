package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

// A login that can't begin is over. Neither another login nor the end of the gateway waits for
// it.
func TestLoginWithoutURL(t *testing.T) {
	t.Parallel()
	c := New([]Server{{Name: "s", URL: "http://[::1"}}, &Options{HTTP: web(t)})
	for range 2 {
		if link, err := c.Login(t.Context(), "s"); err == nil {
			t.Errorf("the link is %q, want an error", link)
		}
	}
}

// StoredSecrets finds the logins in a folder whose path looks like a pattern.
func TestStoredSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bots [home]")
	file := filepath.Join(dir, "tracker.login")
	err := errors.Join(os.Mkdir(dir, 0o700),
		os.WriteFile(file, []byte(`{"token":{"access_token":"a-long-access-token"}}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := StoredSecrets(dir); err != nil || !slices.Contains(got, "a-long-access-token") {
		t.Errorf("StoredSecrets = %q, %v; want the token", got, err)
	}
}

// A server's error about a failed login is shortened for the chat.
func TestLoginFailsAtLength(t *testing.T) {
	t.Parallel()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/register" {
			http.Error(w, strings.Repeat("no ", 10_000), http.StatusBadRequest)
			return
		}
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	t.Cleanup(e.Close)
	c := New([]Server{{Name: "s", URL: e.URL}}, &Options{HTTP: web(t)})
	_, err := c.Login(t.Context(), "s")
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("got %.2000v, want a short error", err)
	}
}

// An authorization server that answers a registration with null can't end the gateway.
func TestNullRegistration(t *testing.T) {
	t.Parallel()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/register" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "null")
	}))
	t.Cleanup(e.Close)
	var logged syncBuffer
	c := New([]Server{{Name: "s", URL: e.URL}}, &Options{HTTP: web(t),
		Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	_, err := c.Login(t.Context(), "s")
	wantError(t, err, "can't be logged in to", "an answer that can't be read")
	if got := logged.String(); !strings.Contains(got, "nil pointer") ||
		!strings.Contains(got, "login.go") {
		t.Errorf("the log is %q, want the panic with its stack", got)
	}
	c.servers[0].login.drop() // must return
}

// A renewal is a login that waits for a new token from an authorization server that does not
// answer.
type renewal struct {
	*login
	client   *Client
	gaveUp   atomic.Bool // the login has waited too long
	released chan struct{}
	done     chan struct{} // closed when the login no longer waits
}

func startRenewal(t *testing.T) *renewal {
	t.Helper()
	asked := make(chan struct{})
	ask := sync.OnceFunc(func() { close(asked) })
	w := &renewal{released: make(chan struct{}), done: make(chan struct{})}
	w.client = New([]Server{{Name: "s", URL: "https://mcp.example.org"}}, &Options{
		HTTP: &http.Client{Transport: doer(func(r *http.Request) (*http.Response, error) {
			ask()
			select {
			case <-w.released:
			case <-r.Context().Done():
				w.gaveUp.Store(true)
			}
			return nil, errors.New("no answer")
		})}})
	w.login = w.client.servers[0].login
	w.http.Timeout = 5 * time.Second
	w.locked(func() {
		w.grant.Client.Endpoint = oauth2.Endpoint{TokenURL: "https://login.example.org/token",
			AuthStyle: oauth2.AuthStyleInParams}
		w.grant.Token = &oauth2.Token{AccessToken: "old-token", RefreshToken: "refresh-token",
			Expiry: time.Unix(1, 0)}
	})
	go func() {
		defer close(w.done)
		w.authorize(httptest.NewRequest(http.MethodPost, w.URL, http.NoBody))
	}()
	<-asked
	return w
}

// end lets the login finish. It fails the test if the login has given up before.
func (w *renewal) end(t *testing.T) {
	t.Helper()
	if w.gaveUp.Load() {
		t.Error("it waited for the authorization server, too")
	}
	close(w.released)
	<-w.done
}

// Secrets returns the secrets of a server that is waiting for a new token, because other servers
// and chats need them.
func TestSecretsDuringRefresh(t *testing.T) {
	t.Parallel()
	w := startRenewal(t)
	if got := w.client.Secrets(); !slices.Equal(got, []string{"old-token", "refresh-token"}) {
		t.Errorf("the secrets are %q", got)
	}
	w.end(t)
}

// A cancelled call does not wait for the token that another call has requested.
func TestCancelDuringRefresh(t *testing.T) {
	t.Parallel()
	w := startRenewal(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.authorize(httptest.NewRequestWithContext(ctx, http.MethodPost, w.URL, http.NoBody))
	w.renew(ctx, "old-token", &authChallenge{status: http.StatusUnauthorized})
	if why := w.problem(); why != "" {
		t.Errorf("the problem is %q", why)
	}
	w.end(t)
}

// A provider is an MCP server that is its own authorization server. It is as strict as those that
// servers are built with: a client must prove itself in the body of its requests for tokens, which
// must name the server.
type provider struct {
	*httptest.Server
	*login
	methods []string // how clients may prove themselves; nil: it does not say

	mu      sync.Mutex
	client  map[string]any // as registered
	renewed int
	down    bool // it gives no tokens
}

func newProvider(t *testing.T, methods ...string) *provider {
	t.Helper()
	p := &provider{methods: methods}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you?", http.StatusUnauthorized)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp",
		func(w http.ResponseWriter, _ *http.Request) {
			p.write(w, http.StatusOK, map[string]any{"resource": p.Server.URL + "/mcp",
				"authorization_servers": []string{p.Server.URL}, "scopes_supported": []string{"read"}})
		})
	mux.HandleFunc("/.well-known/oauth-authorization-server",
		func(w http.ResponseWriter, _ *http.Request) {
			meta := map[string]any{"issuer": p.Server.URL, "response_types_supported": []string{"code"},
				"authorization_endpoint":           p.Server.URL + "/authorize",
				"token_endpoint":                   p.Server.URL + "/token",
				"registration_endpoint":            p.Server.URL + "/register",
				"code_challenge_methods_supported": []string{"S256"},
				"scopes_supported":                 []string{"read", "offline_access"}}
			if p.methods != nil {
				meta["token_endpoint_auth_methods_supported"] = p.methods
			}
			p.write(w, http.StatusOK, meta)
		})
	mux.HandleFunc("/register", p.register)
	mux.HandleFunc("/token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	c := New([]Server{{Name: "s", URL: p.Server.URL + "/mcp"}},
		&Options{HTTP: web(t), Cache: t.TempDir()})
	p.login = c.servers[0].login
	return p
}

func (p *provider) write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client notices
}

func (p *provider) refuse(w http.ResponseWriter, code, why string) {
	p.write(w, http.StatusBadRequest, map[string]any{"error": code, "error_description": why})
}

// register repeats what the client says about itself, as RFC 7591 wants, and adds no defaults.
func (p *provider) register(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client = nil
	if err := json.NewDecoder(r.Body).Decode(&p.client); err != nil {
		p.refuse(w, "invalid_client_metadata", err.Error())
		return
	}
	p.client["client_id"] = "gateway-1"
	if p.client["token_endpoint_auth_method"] != "none" {
		p.client["client_secret"] = "secret-of-the-client"
	}
	p.write(w, http.StatusCreated, p.client)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	secret, _ := p.client["client_secret"].(string)
	switch {
	case p.down:
		http.Error(w, "come back later", http.StatusServiceUnavailable)
		return
	case r.FormValue("client_id") != "gateway-1", r.FormValue("client_secret") != secret:
		p.refuse(w, "invalid_client", "who are you?")
		return
	case r.FormValue("resource") != p.Server.URL+"/mcp":
		p.refuse(w, "invalid_target", "for which server?")
		return
	}
	if r.FormValue("grant_type") == "refresh_token" {
		p.renewed++
	}
	p.write(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": 3600,
		"access_token": fmt.Sprintf("access-token-%d", p.renewed), "refresh_token": "refresh-token"})
}

// logIn logs in as a person does, and returns the link that the person has opened.
func (p *provider) logIn(t *testing.T) *url.URL {
	t.Helper()
	text, err := p.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	q := link.Query()
	err = p.finish(t.Context(), q.Get("redirect_uri")+"?code=1&state="+q.Get("state"))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// The gateway registers as a client that proves itself as the authorization server wants, and for
// the scopes that it asks for. So it can log in to servers whose defaults are others.
func TestRegistration(t *testing.T) {
	t.Parallel()
	for want, methods := range map[string][]string{
		"none":               {"client_secret_post", "client_secret_basic", "none"},
		"client_secret_post": {"client_secret_basic", "client_secret_post"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, methods...)
			asked := strings.Fields(p.logIn(t).Query().Get("scope"))
			slices.Sort(asked)
			if got := p.client["token_endpoint_auth_method"]; got != want {
				t.Errorf("it proves itself by %v, want %s", got, want)
			}
			if got := p.client["scope"]; got != "read offline_access" ||
				!slices.Equal(asked, []string{"offline_access", "read"}) {
				t.Errorf("it registers for %v and asks for %q", got, asked)
			}
		})
	}
}

// A renewal names the server, as the login did. Otherwise the authorization server would refuse it,
// and the person would have to log in again whenever a token expires, also after a restart.
func TestRenewalNamesServer(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "none")
	p.logIn(t)
	if err := p.load(); err != nil {
		t.Fatal(err)
	}
	p.locked(func() { p.grant.Token.Expiry = time.Unix(1, 0) })
	r := httptest.NewRequest(http.MethodPost, p.login.URL, http.NoBody)
	if got := p.authorize(r); got != "access-token-1" {
		t.Errorf("the token is %q, want the renewed one", got)
	}
}

// While the authorization server is out of order, nobody is told to log in. Once it is back, the
// gateway gets a new token by itself.
func TestRenewalDuringOutage(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "none")
	p.logIn(t)
	setDown := func(down bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.down = down
	}
	refused := &authChallenge{status: http.StatusUnauthorized}
	setDown(true)
	if p.renew(t.Context(), "access-token-0", refused) {
		t.Fatal("it is renewed without a new token")
	}
	if got := p.problem(); !strings.Contains(got, "can't get a new one now") ||
		!strings.Contains(got, "come back later") || strings.Contains(got, "/mcp login") {
		t.Errorf("the problem is %q", got)
	}
	setDown(false)
	if !p.renew(t.Context(), "access-token-0", refused) || p.problem() != "" {
		t.Errorf("after the outage the problem is %q", p.problem())
	}
}
