package guard

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// A world has two servers: a public one at 127.0.0.1, which the guard is told to allow, and a
// private one at 127.0.0.2, which no client may reach.
type world struct {
	*testing.T
	dns        *fakeDNS
	mux        *http.ServeMux // of the public server
	port       string         // of both servers
	trespasses atomic.Int32   // connections to the private server
	guard      *Guard
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, dns: newFakeDNS(t), mux: http.NewServeMux()}
	private, public := listenTwice(t)
	serve := func(l net.Listener, h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		if err := s.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		s.Listener = l
		return s
	}
	bad := serve(private, http.NotFoundHandler())
	bad.Config.ConnState = func(net.Conn, http.ConnState) { w.trespasses.Add(1) }
	bad.Start()
	t.Cleanup(bad.Close)
	good := serve(public, w.mux)
	good.Start()
	t.Cleanup(good.Close)
	_, w.port, _ = net.SplitHostPort(public.Addr().String())
	n, err := strconv.Atoi(w.port)
	if err != nil {
		t.Fatal(err)
	}
	w.guard = New(&Options{
		Allow:    []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Ports:    []int{n},
		Resolver: w.dns.resolver(),
	})
	w.dns.answer("public.test", []string{"127.0.0.1"})
	w.dns.answer("other.test", []string{"127.0.0.1"})
	w.dns.answer("private.test", []string{"127.0.0.2"})
	w.mux.HandleFunc("/ok", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "fine") // the client notices missing text
	})
	w.mux.HandleFunc("/to", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", r.FormValue("url"))
		rw.WriteHeader(http.StatusTemporaryRedirect)
	})
	t.Cleanup(func() {
		if n := w.trespasses.Load(); n != 0 {
			t.Errorf("the private server was connected to %d times", n)
		}
	})
	return w
}

// listenTwice listens on the same port of two loopback addresses.
func listenTwice(t *testing.T) (private, public net.Listener) {
	t.Helper()
	for range 20 {
		public, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(public.Addr().String())
		private, err := net.Listen("tcp4", "127.0.0.2:"+port)
		if err == nil {
			return private, public
		}
		_ = public.Close() // try another port
		if strings.Contains(err.Error(), "cannot assign") {
			t.Skip("this system has no 127.0.0.2")
		}
	}
	t.Fatal("no port is free at both addresses")
	return nil, nil
}

// url returns a URL of a host, with the port of the world.
func (w *world) url(host, path string) string { return "http://" + host + ":" + w.port + path }

// to returns the URL of a public page that redirects to a URL.
func (w *world) to(target string) string {
	req, err := http.NewRequest(http.MethodGet, w.url("public.test", "/to"), nil)
	if err != nil {
		w.Fatal(err)
	}
	q := req.URL.Query()
	q.Set("url", target)
	req.URL.RawQuery = q.Encode()
	return req.URL.String()
}

func (w *world) client() *http.Client {
	c := w.guard.Client(0)
	w.Cleanup(c.CloseIdleConnections)
	return c
}

// get returns the body of a URL.
func (w *world) get(c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	body, err := ReadBody(resp, 1<<20)
	return string(body), err
}

func (w *world) wantRefused(c *http.Client, url, reason string) {
	w.Helper()
	body, err := w.get(c, url)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), reason) {
		w.Errorf("GET %s = %q, %v; want it refused with %q", url, body, err, reason)
	}
}

func TestReach(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	for _, host := range []string{"public.test", "PUBLIC.test.", "127.0.0.1", "ｐｕｂｌｉｃ.test"} {
		if body, err := w.get(c, w.url(host, "/ok")); err != nil || body != "fine" {
			t.Errorf("GET from %s = %q, %v", host, body, err)
		}
	}
	w.wantRefused(c, w.url("127.0.0.2", "/"), "127.0.0.2 is a loopback address")
	w.wantRefused(c, w.url("private.test", "/"),
		"the host private.test has the address 127.0.0.2, which is a loopback address")
	w.wantRefused(c, "http://public.test:22/", "port 22")
	w.wantRefused(c, "file:///etc/passwd", `the scheme is "file"`)
	if _, err := w.get(c, w.url("unknown.test", "/")); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("an unknown host: %v, want an error of the resolver", err)
	}
}

func TestRedirects(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	if body, err := w.get(c, w.to("/ok")); err != nil || body != "fine" {
		t.Errorf("a relative redirect = %q, %v", body, err)
	}
	if body, err := w.get(c, w.to(w.url("other.test", "/ok"))); err != nil || body != "fine" {
		t.Errorf("a redirect to another host = %q, %v", body, err)
	}
	w.mux.HandleFunc("/query", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.FormValue("q")) // the client notices missing text
	})
	for _, query := range []string{"two words", "gr\xfcn", `a\b`, "grün", "a%20b+c"} {
		body, err := w.get(c, w.to("/query?q="+query))
		if want, _ := url.QueryUnescape(query); err != nil || body != want {
			t.Errorf("a redirect with the query %q = %q, %v", query, body, err)
		}
	}
	p := ":" + w.port
	for _, tt := range []struct{ target, reason string }{
		{"http://127.0.0.2" + p + "/", "loopback"},
		{"//127.0.0.2" + p + "/", "loopback"},
		{"http://private.test" + p + "/", "loopback"},
		{"http://[::1]" + p + "/", "loopback"},
		{"http://[::ffff:127.0.0.2]" + p + "/", "loopback"},
		{"http://[64:ff9b::127.0.0.2]" + p + "/", "loopback"},
		{"http://127.2" + p + "/", "number"},
		{"http://2130706434" + p + "/", "number"},
		{"http://0x7f000002" + p + "/", "number"},
		{"http://0177.0.0.2" + p + "/", "number"},
		{"http://１２７.0.0.２" + p + "/", "loopback"},
		{"http://public.test@127.0.0.2" + p + "/", "user name"},
		{"http://169.254.169.254/latest/", "link-local"},
		{"http://public.test:23/", "port 23"},
		{"file:///etc/passwd", "scheme"},
		{"gopher://127.0.0.2" + p + "/", "scheme"},
		{"javascript:alert(1)", "scheme"},
	} {
		w.wantRefused(c, w.to(tt.target), tt.reason)
		w.wantRefused(c, w.to(w.to(w.to(tt.target))), tt.reason) // at the end of a chain

		// The guard also protects a client without its rule for redirects.
		lax := &http.Client{Transport: w.guard.Transport()}
		w.wantRefused(lax, w.to(tt.target), tt.reason)
		lax.CloseIdleConnections()
	}
}

func TestRedirectCount(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	w.mux.HandleFunc("/down/{n}", func(rw http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		if n == 0 {
			_, _ = io.WriteString(rw, "bottom") // the client notices missing text
			return
		}
		http.Redirect(rw, r, fmt.Sprintf("/down/%d", n-1), http.StatusFound)
	})
	if body, err := w.get(c, w.url("public.test", "/down/5")); err != nil || body != "bottom" {
		t.Errorf("5 redirects = %q, %v", body, err)
	}
	w.wantRefused(c, w.url("public.test", "/down/6"), "redirects more than 5 times")
}

// TestRebinding checks that a name is refused if its address becomes private between the check
// and the connection, or between two requests.
func TestRebinding(t *testing.T) {
	w := newWorld(t)
	w.dns.answer("rebind.test", []string{"127.0.0.1"}, []string{"127.0.0.2"})
	c := w.client()
	if body, err := w.get(c, w.url("rebind.test", "/ok")); err != nil || body != "fine" {
		t.Fatalf("the first GET = %q, %v", body, err)
	}
	if n := w.dns.count("rebind.test"); n != 1 {
		t.Errorf("one request resolved the name %d times", n)
	}
	c.CloseIdleConnections()
	w.wantRefused(c, w.url("rebind.test", "/ok"), "127.0.0.2, which is a loopback address")
	w.wantRefused(c, w.to(w.url("rebind.test", "/ok")), "127.0.0.2, which is a loopback address")
}

// TestMixedAnswers checks that a name is refused if any of its addresses is refused.
func TestMixedAnswers(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	for _, answer := range [][]string{
		{"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "::1"},
		{"127.0.0.1", "fd00::1"}, {"127.0.0.1", "169.254.169.254"}, {"127.0.0.1", "64:ff9b::a00:1"},
	} {
		w.dns.answer("mixed.test", answer)
		w.wantRefused(c, w.url("mixed.test", "/ok"), "only public addresses can be reached")
	}
}

// A fixed resolver has the same answer for all names.
type fixed []netip.Addr

func (f fixed) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return slices.Clone(f), nil
}

func TestDial(t *testing.T) {
	for _, tt := range []struct {
		network, address string
		answer           fixed
		want             string
	}{
		{"udp", "8.8.8.8:80", nil, `the network is "udp"`},
		{"unix", "/run/docker.sock", nil, `the network is "unix"`},
		{"tcp", "8.8.8.8", nil, "not a host with a port"},
		{"tcp", "8.8.8.8:http", nil, "port http"},
		{"tcp", "[fe80::1%lo]:80", nil, "an address with a zone"},
		{"tcp", "127.1:80", nil, "looks like a number"},
		{"tcp", "x.test:80", fixed{netip.MustParseAddr("2606:4700::1%lo")}, "an address with a zone"},
		{"tcp", "x.test:80", fixed{netip.MustParseAddr("::ffff:10.0.0.1")}, "a private address"},
		{"tcp", "x.test:80", fixed{netip.Addr{}}, "no address"},
		{"tcp", "x.test:80", fixed{}, "no addresses"},
	} {
		conn, err := New(&Options{Resolver: tt.answer}).DialContext(t.Context(), tt.network, tt.address)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Dial(%s, %s) = %v, %v; want %q", tt.network, tt.address, conn, err, tt.want)
		}
	}
}

// TestDialBothFamilies checks that a host can be reached by IPv4 if IPv6 does not work, although
// the host has more IPv6 addresses than are tried.
func TestDialBothFamilies(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	broken, works := netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")
	g := New(&Options{
		Allow:    []netip.Prefix{netip.PrefixFrom(broken, 128), netip.PrefixFrom(works, 32)},
		Ports:    []int{l.Addr().(*net.TCPAddr).Port},
		Resolver: fixed{broken, broken, broken, broken, broken, broken, works},
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	conn, err := g.DialContext(t.Context(), "tcp", "x.test:"+port)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestAlternate(t *testing.T) {
	for in, want := range map[string]string{
		"1.1.1.1":                   "1.1.1.1",
		"2::1 2::2 2::3 1.1.1.1":    "2::1 1.1.1.1 2::2 2::3",
		"2::1 1.1.1.1 1.1.1.2":      "2::1 1.1.1.1 1.1.1.2",
		"1.1.1.1 1.1.1.2 2::1 2::2": "1.1.1.1 2::1 1.1.1.2 2::2",
	} {
		var addrs []netip.Addr
		for _, a := range strings.Fields(in) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		if got := fmt.Sprint(alternate(addrs)); got != "["+want+"]" {
			t.Errorf("alternate(%s) = %s, want %s", in, got, want)
		}
	}
}

// TestCredentials checks that credentials are sent only to the site for which they were set. They
// are also removed if a redirect to another site comes back.
func TestCredentials(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	w.mux.HandleFunc("/headers", func(rw http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "Referer", "Accept"} {
			if r.Header.Get(name) != "" {
				_, _ = io.WriteString(rw, name+" ") // the client notices missing text
			}
		}
	})
	there, back := w.url("other.test", "/headers"), w.url("public.test", "/headers")
	for _, tt := range []struct{ url, want string }{
		{back, "Authorization Cookie X-Api-Key Accept "},
		{w.to("/headers"), "Authorization Cookie X-Api-Key Referer Accept "},
		{w.to(there), "Accept "},
		{w.to(strings.Replace(w.to(back), "public.test", "other.test", 1)), "Accept "},
		{w.to(w.url("127.0.0.1", "/headers")), "Accept "},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "k", "Accept": "*/*",
		} {
			req.Header.Set(name, value)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadBody(resp, 1000); err != nil || string(got) != tt.want {
			t.Errorf("%s got %q, %v; want %q", tt.url, got, err, tt.want)
		}
	}
	for target, refused := range map[string]bool{there: true, "/headers": false} {
		resp, err := c.Post(w.to(target), "text/plain", strings.NewReader("secret"))
		if err == nil {
			_ = resp.Body.Close() // only the error counts
		}
		if errors.Is(err, ErrRefused) != refused {
			t.Errorf("a body that is redirected to %s: %v", target, err)
		}
	}
}

// TestNoProxy checks that no proxy of the environment resolves names for the guard. It does not
// set a proxy: the library reads the environment once in a process, so the test would depend on
// the order of the tests.
func TestNoProxy(t *testing.T) {
	tr, ok := New(nil).Transport().(*transport)
	if !ok || tr.base.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

func TestReadBody(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	send := func(path, encoding string, body []byte) {
		w.mux.HandleFunc(path, func(rw http.ResponseWriter, _ *http.Request) {
			if encoding != "" {
				rw.Header().Set("Content-Encoding", encoding)
			}
			_, _ = rw.Write(body) // the client notices missing text
		})
	}
	send("/bomb", "gzip", bomb.Bytes())
	send("/br", "br", []byte("xxxx"))
	send("/twice", "gzip, gzip", bomb.Bytes())
	send("/exact", "", make([]byte, 1<<20))
	send("/over", "", make([]byte, 1<<20+1))
	w.mux.HandleFunc("/endless", func(rw http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			_, err = rw.Write(make([]byte, 4096))
		}
	})
	for _, path := range []string{"/bomb", "/over", "/endless"} {
		body, err := w.get(c, w.url("public.test", path))
		if !errors.Is(err, ErrTooLarge) || len(body) != 1<<20 {
			t.Errorf("%s = %d bytes, %v; want the first MiB and ErrTooLarge", path, len(body), err)
		}
	}
	for _, word := range []string{"identity", "UTF-8", "none", "aws-chunked"} { // no compression
		send("/"+word, word, []byte("xxxx"))
		if body, err := w.get(c, w.url("public.test", "/"+word)); err != nil || body != "xxxx" {
			t.Errorf("Content-Encoding %s: %q, %v", word, body, err)
		}
	}
	if body, err := w.get(c, w.url("public.test", "/exact")); err != nil || len(body) != 1<<20 {
		t.Errorf("/exact = %d bytes, %v; want a MiB", len(body), err)
	}
	for _, path := range []string{"/br", "/twice"} {
		_, err := w.get(c, w.url("public.test", path))
		if err == nil || !strings.Contains(err.Error(), "not asked for") {
			t.Errorf("%s: %v, want an error about the compression", path, err)
		}
	}
	broken := errors.New("broken")
	resp := &http.Response{Body: io.NopCloser(iotest.ErrReader(broken))}
	if _, err := ReadBody(resp, 10); !errors.Is(err, broken) {
		t.Errorf("ReadBody = %v, want the error of the body", err)
	}
}

// TestSlowBody checks that the context ends a body that never ends.
func TestSlowBody(t *testing.T) {
	w := newWorld(t)
	w.mux.HandleFunc("/slow", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "a") // the client notices missing text
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url("public.test", "/slow"), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := ReadBody(resp, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadBody = %v, want %v", err, context.Canceled)
	}
}
