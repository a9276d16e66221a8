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
)

// NewClient returns a client for many calls at once to few hosts.
func NewClient() *http.Client {
	dialer := &net.Dialer{Timeout: dialLimit, KeepAlive: keepAlives}
	return &http.Client{Transport: &http.Transport{
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
