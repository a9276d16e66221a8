package mcp

import "testing"

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
