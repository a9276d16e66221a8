package telegram

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
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

// NewProxyTransport is like [NewTransport] for a proxy given by its URL, whose scheme is http,
// https, socks5 or socks5h and which may have a user and a password; "" means the environment's.
func NewProxyTransport(proxy string) (*http.Transport, error) {
	t := NewTransport()
	if proxy == "" {
		return t, nil
	}
	u, err := url.Parse(proxy)
	if err != nil {
		return nil, errors.New("telegram: the proxy is no URL") // err shows it with the password
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return nil, fmt.Errorf("telegram: proxy %s: the scheme is none of http, https, socks5",
			u.Redacted())
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("telegram: proxy %s: no host", u.Redacted())
	}
	t.Proxy = http.ProxyURL(u)
	return t, nil
}
