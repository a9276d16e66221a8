package telegram

import (
	"net"
	"net/http"
	"time"
)

// NewTransport returns the transport that a [Channel] uses by default: many idle connections
// to one host, because thousands of chats are answered at once, and none of them older than
// the server's own keep-alive. A proxy is taken from the environment.
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
			SendPingTimeout: 15 * time.Second, // notices a dead connection under a long poll
			PingTimeout:     10 * time.Second,
		},
	}
}
