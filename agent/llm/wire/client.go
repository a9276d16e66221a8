package wire

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of a client.
const (
	dialLimit  = 10 * time.Second
	idleConns  = 512 // connections kept per provider
	idleLimit  = 90 * time.Second
	keepAlives = 30 * time.Second

	maxRedirects = 5

	// Of each connection without HTTP/2, for which 4096 are usual: an answer comes in short pieces,
	// and of a request only the header goes through the buffer.
	readBuffer  = 2048
	writeBuffer = 1024
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
		MaxIdleConns:        2 * idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleLimit,
		DisableCompression:  true, // a compressed stream comes in lumps
		ReadBufferSize:      readBuffer,
		WriteBufferSize:     writeBuffer,
	}}
}

// A conn sends what does not fit into the buffer of a connection by way of a buffer from a pool. A
// TCP connection of the net package takes a new one for each request.
type conn struct{ net.Conn }

// buffers are those of requests that are being sent.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom implements [io.ReaderFrom].
func (c conn) ReadFrom(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{c.Conn}, r, buf[:])
}
