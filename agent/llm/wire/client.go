package wire

import (
	"net"
	"net/http"
	"time"
)

// Bounds of a client.
const (
	dialLimit  = 10 * time.Second
	idleConns  = 512 // connections kept per provider
	idleLimit  = 90 * time.Second
	keepAlives = 30 * time.Second

	maxRedirects = 5
)

// sameHost lets requests be redirected on their own host only: another one would get the key and
// the conversation.
func sameHost(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || req.URL.Host != via[0].URL.Host ||
		req.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// NewClient returns a client for many calls at once to few hosts.
func NewClient() *http.Client {
	dialer := &net.Dialer{Timeout: dialLimit, KeepAlive: keepAlives}
	return &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: dialLimit,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        2 * idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleLimit,
		DisableCompression:  true, // a compressed stream comes in lumps
	}}
}
