package wire

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of a client.
const (
	dialLimit  = 10 * time.Second
	idleConns  = 512 // idle connections per provider
	idleLimit  = 90 * time.Second
	keepAlives = 30 * time.Second
	pingAfter  = 15 * time.Second // silence after which an HTTP/2 connection is checked
	pingLimit  = 10 * time.Second

	maxRedirects = 5

	// Per connection without HTTP/2. The usual size is 4096, but an answer arrives in short pieces,
	// and only the header of a request goes through the buffer.
	readBuffer  = 2048
	writeBuffer = 1024
)

// sameHost allows redirects on the same host only. Another host would get the key and the
// conversation.
func sameHost(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || req.URL.Host != via[0].URL.Host ||
		req.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// NewClient returns a client for many concurrent calls to few hosts.
func NewClient() *http.Client {
	dialer := &net.Dialer{Timeout: dialLimit, KeepAlive: keepAlives}
	return &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return conn{c}, nil
		},
		TLSHandshakeTimeout: dialLimit,
		ForceAttemptHTTP2:   true,
		// Otherwise each further call would use a connection that is dead.
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingLimit},
		MaxIdleConns:        2 * idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleLimit,
		DisableCompression:  true, // compressed streams arrive in large pieces
		ReadBufferSize:      readBuffer,
		WriteBufferSize:     writeBuffer,
	}}
}

// A conn copies request bodies with a buffer from a pool. A TCP connection of package net allocates
// a new buffer for each request.
type conn struct{ net.Conn }

// buffers holds the buffers for sending requests.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom implements [io.ReaderFrom].
func (c conn) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{c.Conn}, r, buf[:])
}
