package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"gateway/cmd/gateway/internal/config"
)

// A server that the operator names on this machine is reached there and nowhere else, and pages
// are not.
func TestServerGuard(t *testing.T) {
	start := func() (port string) {
		s := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(s.Close)
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		return u.Port()
	}
	ours, other := start(), start()
	for _, host := range []string{"localhost", "127.0.0.1"} {
		cfg := &config.Config{MCP: map[string]config.Server{
			"s": {Enabled: true, URL: fmt.Sprintf("http://%s:%s/mcp", host, ours)}}}
		get := func(c *http.Client, port string) error {
			resp, err := c.Get("http://" + host + ":" + port)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		if err := get(newServerGuard(cfg).Client(0), ours); err != nil {
			t.Errorf("%s: the server is not reached: %v", host, err)
		}
		if get(newServerGuard(cfg).Client(0), other) == nil {
			t.Errorf("%s: another port is reached", host)
		}
		if get(newGuard(cfg).Client(0), ours) == nil {
			t.Errorf("%s: a page may come from there", host)
		}
	}
}
