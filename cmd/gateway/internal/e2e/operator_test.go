package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gateway/cmd/gateway/internal/ops"
)

// soonTroubled makes a gateway report problems five times sooner: a loop that runs every two
// seconds counts as stuck after three.
const soonTroubled = "GATEWAY_HEALTH_SCALE=5"

// An operator asks a running gateway for its state by HTTP.
type operator struct {
	*process
	ops.Endpoint
	client *http.Client
}

// operate starts a gateway and returns when its server listens.
func (w *world) operate(env ...string) *operator {
	w.t.Helper()
	p := w.start(append([]string{"GATEWAY_HTTP__LISTEN=127.0.0.1:0"}, env...)...)
	o := &operator{process: p,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	w.repeat("the server to listen", func() bool {
		e, err := ops.ReadEndpoint(w.home)
		o.Endpoint = e
		return err == nil && e.PID == p.cmd.Process.Pid
	})
	return o
}

// repeat checks cond repeatedly until it is true.
func (w *world) repeat(what string, cond func() bool) {
	w.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited for %s", what)
		}
	}
}

// get sends a request with the operator's token.
func (o *operator) get(path string) (code int, body string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+o.Address+path, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+o.Token)
	for {
		code, body, err := o.post(o.t, req)
		switch {
		case err == nil:
			return code, body
		case !isCutOff(err):
			o.t.Fatalf("get %s: %v\n%s", path, err, o.newest())
		}
	}
}

// isCutOff reports whether err means that the server closed the connection without a response. It
// does so if a slow machine sends the request too late.
func isCutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || strings.Contains(err.Error(), "server closed idle connection")
}

// check returns the result of a check in /readyz, and whether the gateway is ready.
func (o *operator) check(name string) (r ops.Result, ready bool) {
	o.t.Helper()
	code, body := o.get("/readyz")
	var report ops.Report
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		o.t.Fatalf("/readyz: %v in %s", err, body)
	}
	if want := map[bool]int{true: 200, false: 503}[report.Ready]; code != want {
		o.t.Errorf("/readyz has code %d, want %d: %s", code, want, body)
	}
	for _, c := range report.Checks {
		if c.Name == name {
			return c, report.Ready
		}
	}
	o.t.Fatalf("/readyz has no check %q: %s", name, body)
	return r, false
}

// turns waits until the check name has the result ok and, if states are given, one of these
// states. On a slow machine, a check can fail for a moment because it takes too long.
func (o *operator) turns(w *world, name string, ok bool, states ...string) {
	o.t.Helper()
	w.repeat(fmt.Sprintf("%s to be ok: %t, as %q", name, ok, states), func() bool {
		r, ready := o.check(name)
		if !r.OK && ready {
			o.t.Errorf("the gateway is ready though %s is not: %s", name, r.State)
		}
		says := func(state string) bool { return strings.Contains(r.State, state) }
		return r.OK == ok && (len(states) == 0 || slices.ContainsFunc(states, says))
	})
}

// healthy waits until all checks are OK.
func (o *operator) healthy(w *world) {
	o.t.Helper()
	w.repeat("the gateway to be ready", func() bool {
		code, _ := o.get("/readyz")
		return code == http.StatusOK
	})
	if code, body := o.get("/healthz"); code != http.StatusOK {
		o.t.Errorf("/healthz = %d %s while all is well", code, body)
	}
}

// post sends a request and returns the response. It returns an error if there is no response.
func (o *operator) post(t testing.TB, req *http.Request) (code int, body string, err error) {
	t.Helper()
	resp, err := o.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// commandIn returns a command that runs the gateway in the home of w, with an HTTP server.
func commandIn(ctx context.Context, path string, w *world, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(w.environ(), "GATEWAY_HTTP__LISTEN=127.0.0.1:0")
	return cmd
}
