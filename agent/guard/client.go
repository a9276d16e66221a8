package guard

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxRedirects is how many redirects a client follows.
const maxRedirects = 5

// A transport checks each request with the guard before it sends it.
type transport struct {
	guard *Guard
	base  *http.Transport
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := t.guard.Check(req.URL.String())
	if err != nil {
		if req.Body != nil { // an [http.RoundTripper] must close it
			_ = req.Body.Close() // it was only to be read
		}
		return nil, err
	}
	checked := req.Clone(req.Context())
	if checked.Host == req.URL.Host {
		checked.Host = u.Host
	}
	checked.URL = u
	resp, err := t.base.RoundTrip(checked)
	if refused, ok := errors.AsType[*Error](err); ok {
		return nil, &Error{URL: redactURL(u.String()), Reason: refused.Reason}
	}
	return resp, err
}

// CloseIdleConnections closes the unused connections.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// Client returns a new client with its own transport. timeout limits a whole request, including its
// body; 0 means that only the context limits it. The client follows five redirects. If a redirect
// leads to another origin (scheme, host and port), the client sends only the headers Accept,
// Accept-Language and User-Agent there, and refuses to send the request's body.
func (g *Guard) Client(timeout time.Duration) *http.Client {
	return &http.Client{Transport: g.Transport(), Timeout: timeout, CheckRedirect: g.redirect}
}

// harmless are the headers that reveal nothing about the sender.
var harmless = []string{"Accept", "Accept-Language", "User-Agent"}

// redirect checks a redirected request. It removes headers or returns an error.
func (g *Guard) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &Error{
			URL:    redactURL(via[0].URL.String()),
			Reason: fmt.Sprintf("it redirects more than %d times", maxRedirects),
		}
	}
	req.URL.RawQuery = escaped(req.URL.RawQuery)
	u, err := g.Check(req.URL.String())
	if err != nil {
		return err
	}
	first := origin(via[0].URL)
	foreign := func(r *http.Request) bool { return origin(r.URL) != first }
	if !foreign(req) && !slices.ContainsFunc(via, foreign) {
		return nil // still at the first origin, which alone chose the target
	}
	if req.Body != nil && req.Body != http.NoBody {
		return &Error{
			URL:    redactURL(u.String()),
			Reason: "a redirect would send the content of the request to another site",
		}
	}
	for name := range req.Header {
		if !slices.Contains(harmless, name) {
			req.Header.Del(name)
		}
	}
	return nil
}

// escaped returns a query with what can't be in one percent-encoded, as browsers do. Some servers
// redirect to URLs with blanks, backslashes or letters outside ASCII.
func escaped(query string) string {
	var b strings.Builder
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// origin returns the scheme, host and port of a URL.
func origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "" && u.Scheme == "https":
		port = "443"
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// compressions are the content codings that a server may use unasked.
var compressions = []string{"gzip", "x-gzip", "compress", "x-compress", "deflate", "br", "zstd"}

// Compression returns the content coding in which the body of a response still is, or "". Some
// servers write other words into the header, such as "UTF-8" or "aws-chunked", which mean nothing.
func Compression(resp *http.Response) string {
	for word := range strings.SplitSeq(resp.Header.Get("Content-Encoding"), ",") {
		if word = strings.ToLower(strings.TrimSpace(word)); slices.Contains(compressions, word) {
			return word
		}
	}
	return ""
}

// ErrTooLarge reports that a body is longer than the limit.
var ErrTooLarge = errors.New("the answer is too large")

// ReadBody returns the decompressed body of a response and closes it. If the body is longer than
// limit bytes, ReadBody returns the first ones and [ErrTooLarge]. The request's context can
// interrupt it. The request must not set Accept-Encoding, so that package http decompresses the
// body; ReadBody returns an error for a body that is still compressed.
func ReadBody(resp *http.Response, limit int64) ([]byte, error) {
	// The data was checked when it was read; an error of Close does not matter.
	defer func() { _ = resp.Body.Close() }()
	if c := Compression(resp); c != "" {
		return nil, fmt.Errorf("the answer is compressed as %q, which was not asked for", c)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if int64(len(body)) > limit {
		return body[:limit], fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return body, err
}
