package telegram

import (
	"net"
	"net/http"
	"time"
)

// NewTransport returns the default transport of a [Channel]. It keeps many idle connections to one
// host, because thousands of chats may be answered at once, and closes them before the server's
// keep-alive does. It takes a proxy from the environment.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 512,
		IdleConnTimeout:     55 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 15 * time.Second, // detects a dead connection during a long poll
			PingTimeout:     10 * time.Second,
		},
	}
}
