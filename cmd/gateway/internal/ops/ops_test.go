package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "the-operators-token"

func get(h http.Handler, method, path, host, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAccess(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	s := New("gw.example:8790", t.TempDir(), &Options{Token: token, Metrics: ok, Hooks: ok})
	local, public := s.handler(true), s.handler(false)
	const right, wrong = "Bearer " + token, "Bearer " + token + "x"
	for _, tt := range []struct {
		name                string
		h                   http.Handler
		method, path, host  string
		authorization       string
		want                int
		wantedAuthorization bool
	}{
		{"health", local, "GET", "/healthz", "127.0.0.1:8790", "", 200, false},
		{"head", local, "HEAD", "/healthz", "127.0.0.1:8790", "", 200, false},
		{"by name", local, "GET", "/readyz", "localhost:8790", "", 200, false},
		{"by v6", local, "GET", "/metrics", "[::1]:8790", "", 200, false},
		{"v6 alone", local, "GET", "/metrics", "[::1]", "", 200, false},
		{"as configured", local, "GET", "/metrics", "gw.example:8790", "", 200, false},
		{"rebound name", local, "GET", "/metrics", "evil.example:8790", "", 421, false},
		{"rebound name, known token", local, "GET", "/metrics", "evil.example", right, 421, false},
		{"no host", local, "GET", "/metrics", "", "", 421, false},
		{"another gateway's token", local, "GET", "/healthz", "localhost", wrong, 401, true},
		{"right token", local, "GET", "/healthz", "localhost", right, 200, false},
		{"profile", local, "GET", "/debug/pprof/", "localhost", "", 401, true},
		{"profile, wrong", local, "GET", "/debug/pprof/", "localhost", wrong, 401, true},
		{"profile, right", local, "GET", "/debug/pprof/", "localhost", right, 200, false},
		{"profile, kind", local, "GET", "/debug/pprof/heap?debug=1", "localhost", right, 200, false},
		{"unknown", local, "GET", "/", "localhost", right, 404, false},
		{"unknown hook path", local, "POST", "/hooks/", "localhost", "", 404, false},
		{"method", local, "POST", "/healthz", "localhost", "", 405, false},
		{"method of hooks", local, "GET", "/hooks/x", "localhost", "", 405, false},
		{"hook by any name", local, "POST", "/hooks/x", "gw.example", "", 200, false},
		{"hook with its own secret", local, "POST", "/hooks/x", "localhost", "Bearer s", 200, false},

		{"public", public, "GET", "/healthz", "gw.example", "", 401, true},
		{"public, lower case", public, "GET", "/healthz", "gw.example", "bearer " + token, 401, true},
		{"public, basic", public, "GET", "/healthz", "gw.example", "Basic " + token, 401, true},
		{"public, wrong", public, "GET", "/readyz", "gw.example", wrong, 401, true},
		{"public, right", public, "GET", "/readyz", "gw.example", right, 200, false},
		{"public metrics", public, "GET", "/metrics", "gw.example", "", 401, true},
		{"public profile", public, "GET", "/debug/pprof/cmdline", "gw.example", "", 401, true},
		{"public hook", public, "POST", "/hooks/x", "gw.example", "", 200, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := get(tt.h, tt.method, tt.path, tt.host, tt.authorization)
			if w.Code != tt.want {
				t.Errorf("%s %s = %d, want %d: %s", tt.method, tt.path, w.Code, tt.want, w.Body)
			}
			if got := w.Header().Get("WWW-Authenticate") != ""; got != tt.wantedAuthorization {
				t.Errorf("a token is asked for: %t, want %t", got, tt.wantedAuthorization)
			}
			if strings.Contains(w.Body.String(), token) {
				t.Errorf("the answer shows the token: %s", w.Body)
			}
		})
	}
}

// A proxy on this machine that forwards more than hooks gives others no access without the token.
func TestForwarded(t *testing.T) {
	h := New("127.0.0.1:8790", t.TempDir(), &Options{Token: token}).handler(true)
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Real-IP"} {
		for authorization, want := range map[string]int{"": 401, "Bearer x": 401,
			"Bearer " + token: 200} {
			r := httptest.NewRequest("GET", "/readyz", nil)
			r.Host = "127.0.0.1:8790"
			r.Header.Set(header, "for=192.0.2.1")
			r.Header.Set("Authorization", authorization)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("with %s and %q: %d, want %d", header, authorization, w.Code, want)
			}
		}
	}
}

// Without metrics and hooks, their paths do not exist.
func TestWithoutMetricsAndHooks(t *testing.T) {
	h := New("127.0.0.1:0", t.TempDir(), nil).handler(true)
	for method, path := range map[string]string{"GET": "/metrics", "POST": "/hooks/x"} {
		if w := get(h, method, path, "localhost", ""); w.Code != http.StatusNotFound {
			t.Errorf("%s %s = %d, want 404", method, path, w.Code)
		}
	}
}

// run runs s until the test ends or the returned function is called.
func run(t *testing.T, s *Server) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() }) // a test that checks the error calls stop itself
	return stop
}

// endpoint waits until the gateway in home listens, and returns its endpoint.
func endpoint(t *testing.T, home string) Endpoint {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * time.Minute); ; <-tick.C {
		e, err := ReadEndpoint(home)
		if err == nil {
			return e
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func ask(t *testing.T, e Endpoint, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + e.Address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestRun(t *testing.T) {
	home := t.TempDir()
	stale := Endpoint{Address: "127.0.0.1:1", Token: "old", PID: 1}
	if err := stale.write(home); err != nil { // as a process that was killed leaves it
		t.Fatal(err)
	}
	ready := false
	s := New("127.0.0.1:0", home, &Options{Ready: NewHealth(Check{"x",
		func(context.Context) (string, bool) { return "in some state", ready }})})
	stop := run(t, s)
	e := endpoint(t, home)
	for e == stale {
		e = endpoint(t, home)
	}
	if len(e.Token) < 16 || e.PID != os.Getpid() {
		t.Errorf("endpoint = %+v, want a token and process %d", e, os.Getpid())
	}
	st, err := os.Stat(endpointFile(home))
	if err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Errorf("http.json: %v, %v; want mode 0600", st.Mode(), err)
	}
	if code, body := ask(t, e, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz = %d %q, want ok", code, body)
	}
	code, body := ask(t, e, "/readyz")
	var r Report
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	if code != 503 || r.Ready || len(r.Checks) != 1 || r.Checks[0].State != "in some state" {
		t.Errorf("/readyz = %d %s, want 503 and why", code, body)
	}
	ready = true
	if code, body := ask(t, e, "/readyz"); code != 200 {
		t.Errorf("/readyz = %d %s, want 200", code, body)
	}
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if _, err := ReadEndpoint(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("endpoint after the end: %v, want none", err)
	}
	if list, _ := os.ReadDir(home); len(list) != 1 || list[0].Name() != "http.lock" {
		t.Errorf("files are left: %v", list)
	}
	stale.Token = "new"
	if err := stale.write(home); err != nil { // as a process that was killed leaves it
		t.Fatal(err)
	}
	if _, err := ReadEndpoint(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("endpoint that was left behind: %v, want none", err)
	}
}

// Nobody can keep others out by connections that have been answered and stay open.
func TestCrowd(t *testing.T) {
	home := t.TempDir()
	s := New("127.0.0.1:0", home, &Options{Token: token})
	run(t, s)
	e := endpoint(t, home)
	for range maxConnections {
		conn, err := net.Dial("tcp", e.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var answer []byte
		if _, err = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"); err == nil {
			answer, err = io.ReadAll(conn) // until the server closes the connection
		}
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 404") ||
			!strings.Contains(string(answer), "Connection: close") {
			t.Fatalf("got %q, %v; want a refusal that ends the connection", answer, err)
		}
	}
	resp, err := http.Get("http://" + e.Address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got status %d", resp.StatusCode)
	}
}

// A loopback address that is in use does not keep the gateway from starting. The server listens
// there when the address is free.
func TestTaken(t *testing.T) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // an address of this process, whose ports nobody else takes
		pid := os.Getpid()
		host = fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	told := make(chan struct{})
	handler := &notify{slog.NewTextHandler(&log, nil), told}
	home := t.TempDir()
	stop := run(t, New(l.Addr().String(), home, &Options{
		Retry: time.Millisecond, Logger: slog.New(handler)}))
	<-told
	if _, err := ReadEndpoint(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("endpoint while the address is taken: %v, want none", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if e := endpoint(t, home); e.Address != l.Addr().String() {
		t.Errorf("it listens at %s, want %s", e.Address, l.Addr())
	}
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if !strings.Contains(log.String(), "[http] listen") ||
		strings.Count(log.String(), "does not listen yet") != 1 {
		t.Errorf("the log has no remedy, or has it more than once:\n%s", log.String())
	}
}

// notify is a log handler that closes told at the first record.
type notify struct {
	slog.Handler
	told chan struct{}
}

func (n *notify) Handle(ctx context.Context, r slog.Record) error {
	err := n.Handler.Handle(ctx, r)
	select {
	case <-n.told:
	default:
		close(n.told)
	}
	return err
}

// If the server can't listen at an address that is not a loopback address, Run returns an error.
func TestWrongAddress(t *testing.T) {
	err := New("192.0.2.1:0", t.TempDir(), nil).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "[http] listen") {
		t.Errorf("Run = %v, want an error with a remedy", err)
	}
}

func TestReachable(t *testing.T) {
	for _, tt := range []struct{ ip, want string }{
		{"0.0.0.0", "127.0.0.1:80"}, {"::", "127.0.0.1:80"}, {"::1", "[::1]:80"},
		{"192.0.2.7", "192.0.2.7:80"},
	} {
		if got := reachable(&net.TCPAddr{IP: net.ParseIP(tt.ip), Port: 80}); got != tt.want {
			t.Errorf("reachable(%s) = %s, want %s", tt.ip, got, tt.want)
		}
	}
}

func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ok := true
		h := NewHealth(Check{"x", func(context.Context) (string, bool) { return "s", ok }})
		first := time.Now()
		for _, step := range []struct {
			ok   bool
			want time.Duration // expected Since, relative to first
		}{
			{true, 0}, {true, 0}, {false, 2 * time.Second}, {false, 2 * time.Second},
			{true, 4 * time.Second},
		} {
			ok = step.ok
			r := h.Report(t.Context())
			if r.Ready != ok || r.Checks[0].OK != ok {
				t.Errorf("report = %+v, want %t", r, ok)
			}
			if got := r.Checks[0].Since.Sub(first); got != step.want {
				t.Errorf("since %s, want %s", got, step.want)
			}
			time.Sleep(time.Second)
		}
	})
}

// A try that hangs is reported, no second try begins meanwhile, and the probe recovers when the
// try ends.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{}, 1) // if it is full, a try hangs
		var broken atomic.Bool
		var tries, running atomic.Int64
		p := NewProbe(5*time.Second, 2*time.Second, func(context.Context) (string, error) {
			tries.Add(1)
			if running.Add(1) > 1 {
				t.Error("two tries at once")
			}
			free <- struct{}{}
			<-free
			running.Add(-1)
			if broken.Load() {
				return "", errors.New("broken")
			}
			return "fine", nil
		})
		check := func(want string, wantOK bool) {
			t.Helper()
			synctest.Wait()
			if state, ok := p.Test(t.Context()); state != want || ok != wantOK {
				t.Errorf("Test = %q, %t; want %q, %t", state, ok, want, wantOK)
			}
		}
		check("not tried yet", false)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		free <- struct{}{}
		wg.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		check("being tried", false)
		<-free
		check("fine", true)
		free <- struct{}{}
		time.Sleep(6 * time.Second)
		check("fine", true) // a try may take that long
		time.Sleep(24 * time.Second)
		check("no answer for 25s", false)
		if n := tries.Load(); n != 2 {
			t.Errorf("%d tries, want 2", n)
		}
		<-free
		check("fine", true)
		broken.Store(true)
		time.Sleep(10 * time.Second)
		check("broken", false)
		broken.Store(false)
		time.Sleep(10 * time.Second)
		check("fine", true)
		cancel()
		wg.Wait()
	})
}

func TestDiskSpace(t *testing.T) {
	s, err := DiskSpace(t.TempDir())
	if err != nil || s.Total == 0 || s.Free > s.Total {
		t.Errorf("DiskSpace = %d of %d, %v", s.Free, s.Total, err)
	}
	if _, err := DiskSpace(t.TempDir() + "/none"); err == nil {
		t.Error("there is a disk where there is no folder")
	}
}
