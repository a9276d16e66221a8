package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"gateway/cmd/gateway/internal/config"
)

// TestServerGuard verifies that a server on this machine, which the operator has configured, is
// reached only at its own address. Requests to it don't reach another configured server, and web
// pages are not loaded from it.
func TestServerGuard(t *testing.T) {
	start := func(h http.Handler) (port string) {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		return u.Port()
	}
	var visits atomic.Int32
	other := start(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	ours := start(http.NotFoundHandler())
	unlisted := start(http.NotFoundHandler())
	for _, host := range []string{"localhost", "127.0.0.1"} {
		leads := start(http.RedirectHandler("http://"+host+":"+other, http.StatusTemporaryRedirect))
		cfg := &config.Config{MCP: map[string]config.Server{
			"s":     {Enabled: true, URL: fmt.Sprintf("http://%s:%s/mcp", host, ours)},
			"leads": {Enabled: true, URL: fmt.Sprintf("http://%s:%s/mcp", host, leads)},
			"other": {Enabled: true, URL: fmt.Sprintf("http://%s:%s/mcp", host, other)}}}
		get := func(c *http.Client, port string) error {
			resp, err := c.Get("http://" + host + ":" + port)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		client := newServerGuard(cfg, cfg.MCP["s"]).Client(0)
		if err := get(client, ours); err != nil {
			t.Errorf("%s: the server is not reached: %v", host, err)
		}
		if get(client, unlisted) == nil || get(client, other) == nil {
			t.Errorf("%s: another port is reached", host)
		}
		if get(newServerGuard(cfg, cfg.MCP["leads"]).Client(0), leads) == nil || visits.Load() > 0 {
			t.Errorf("%s: a server leads to another one", host)
		}
		if get(newGuard(cfg).Client(0), ours) == nil {
			t.Errorf("%s: a page may come from there", host)
		}
	}
}
