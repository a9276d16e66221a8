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

// soonTroubled has a gateway of operate say five times as soon that something is wrong: a loop that
// goes round every two seconds is stuck after three.
const soonTroubled = "GATEWAY_HEALTH_SCALE=5"

// An operator asks a gateway that runs how it is, by HTTP.
type operator struct {
	*process
	ops.Endpoint
	client *http.Client
}

// operate starts a gateway whose server listens, and returns once it does.
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

// repeat waits until cond holds, which it looks at again and again.
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

// get returns the answer to a request, with the operator's token.
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

// isCutOff reports whether err says that the server has hung up without an answer, as it does if a
// slow machine sends it the request too late.
func isCutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || strings.Contains(err.Error(), "server closed idle connection")
}

// check returns what a check of /readyz has found, and whether the gateway is ready.
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

// turns waits until a check has found what is wanted, and says one of states, if there are any: on
// a slow machine it may be red for a moment as it takes too long. While it is red so is the whole.
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

// healthy waits until all checks are green.
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

// post posts to a hook of the gateway. It returns an error if there is no answer.
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

// commandIn returns a command of the gateway in the home of w, for a server that listens.
func commandIn(ctx context.Context, path string, w *world, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(w.environ(), "GATEWAY_HTTP__LISTEN=127.0.0.1:0")
	return cmd
}
