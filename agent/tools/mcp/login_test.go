package mcp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
