package mcp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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
