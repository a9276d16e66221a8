package mcp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

// A login that can't begin is over: nothing waits for it, neither another one nor the end of the
// gateway.
func TestLoginWithoutURL(t *testing.T) {
	t.Parallel()
	c := New([]Server{{Name: "s", URL: "http://[::1"}}, &Options{HTTP: web(t)})
	for range 2 {
		if link, err := c.Login(t.Context(), "s"); err == nil {
			t.Errorf("the link is %q, want an error", link)
		}
	}
}

// What a server says of a login that fails does not fill the chat.
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

// The secrets of a server that waits for a new token are known: other servers and chats need them.
func TestSecretsDuringRefresh(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	var late atomic.Bool
	c := New([]Server{{Name: "s", URL: "https://mcp.example.org"}}, &Options{HTTP: &http.Client{
		Transport: doer(func(r *http.Request) (*http.Response, error) {
			close(asked)
			select {
			case <-release:
			case <-r.Context().Done():
				late.Store(true)
			}
			return nil, errors.New("no answer")
		})}})
	l := c.servers[0].login
	l.http.Timeout = 5 * time.Second
	l.locked(func() {
		l.grant.Client.Endpoint = oauth2.Endpoint{TokenURL: "https://login.example.org/token",
			AuthStyle: oauth2.AuthStyleInParams}
		l.grant.Token = &oauth2.Token{AccessToken: "old-token", RefreshToken: "refresh-token",
			Expiry: time.Unix(1, 0)}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.authorize(httptest.NewRequest(http.MethodPost, l.URL, http.NoBody))
	}()
	<-asked
	if got := c.Secrets(); !slices.Equal(got, []string{"old-token", "refresh-token"}) {
		t.Errorf("the secrets are %q", got)
	}
	if late.Load() {
		t.Error("the secrets were not known before the authorization server was given up")
	}
	close(release)
	<-done
}
