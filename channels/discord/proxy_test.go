package discord_test

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// tunnel serves requests as a proxy does: it forwards them, or it connects both sides.
func tunnel(w http.ResponseWriter, r *http.Request) {
	if user, _, _ := (&http.Request{Header: http.Header{
		"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth(); user != "me" {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		r.RequestURI = ""
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
		return
	}
	far, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	connect(near, far)
}

// connect copies between two connections until one of them ends.
func connect(near, far net.Conn) {
	defer near.Close()
	go func() {
		_, _ = io.Copy(far, near)
		far.Close()
	}()
	_, _ = io.Copy(near, far)
}

// The gateway also connects through a proxy to which it speaks TLS. The library can't do that.
func TestHTTPSProxy(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(tunnel))
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	roots := x509.NewCertPool()
	roots.AddCert(proxy.Certificate())
	transport := w.opts.Transport.(*http.Transport)
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "https", User: url.UserPassword("me", "pass"),
		Host: proxy.Listener.Addr().String()})
	transport.TLSClientConfig = proxy.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	transport.TLSClientConfig.RootCAs = roots
	w.run(t)
	w.Say(direct, person, "hello")
	if got := w.received(t, 1)[0].Text; got != "hello" {
		t.Errorf("received %q", got)
	}
}

// The gateway also connects through socks5h://, which the library does not know.
func TestSOCKSProxy(t *testing.T) {
	t.Parallel()
	w := start(t, nil, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			go socks(near)
		}
	}()
	w.opts.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "socks5h",
		Host: ln.Addr().String()})
	w.run(t)
	w.Say(direct, person, "hello")
	if got := w.received(t, 1)[0].Text; got != "hello" {
		t.Errorf("received %q", got)
	}
}

// socks serves a client of SOCKS 5 that wants an IPv4 address, without authentication.
func socks(near net.Conn) {
	defer near.Close()
	greeting, request := make([]byte, 3), make([]byte, 10)
	if _, err := io.ReadFull(near, greeting); err != nil {
		return
	}
	_, _ = near.Write([]byte{5, 0})
	if _, err := io.ReadFull(near, request); err != nil {
		return
	}
	far, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: request[4:8],
		Port: int(request[8])<<8 | int(request[9])})
	if err != nil {
		return
	}
	defer far.Close()
	_, _ = near.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	connect(near, far)
}
