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

// maxRedirects is how many are followed.
const maxRedirects = 5

// A transport lets only those requests pass that the guard has checked.
type transport struct {
	guard *Guard
	base  *http.Transport
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := t.guard.Check(req.URL.String())
	if err != nil {
		closeBody(req)
		return nil, err
	}
	checked := req.Clone(req.Context())
	if checked.Host == req.URL.Host {
		checked.Host = u.Host
	}
	checked.URL = u
	resp, err := t.base.RoundTrip(checked)
	if refused := (*Error)(nil); errors.As(err, &refused) {
		return nil, &Error{URL: shown(u.String()), Reason: refused.Reason}
	}
	return resp, err
}

// closeBody closes the body of a request that is not sent, as a [http.RoundTripper] must.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // it was only to be read
	}
}

// CloseIdleConnections ends the connections that nobody uses.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// Client returns a new client over a transport of its own. The timeout is that of a whole
// request, its body included; 0 means that only the context ends it. The client follows five
// redirects. One to another origin (scheme, host and port) does not get what the request had in
// its headers, except for the harmless ones, and is refused if it would get the request's body.
func (g *Guard) Client(timeout time.Duration) *http.Client {
	return &http.Client{Transport: g.Transport(), Timeout: timeout, CheckRedirect: g.redirect}
}

// harmless are the headers that say nothing about who asks.
var harmless = []string{"Accept", "Accept-Language", "User-Agent"}

// redirect judges a request that the answers to those before it have led to.
func (g *Guard) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return &Error{
			URL:    shown(via[0].URL.String()),
			Reason: fmt.Sprintf("it redirects more than %d times", maxRedirects),
		}
	}
	u, err := g.Check(req.URL.String())
	if err != nil {
		return err
	}
	first := origin(via[0].URL)
	foreign := func(r *http.Request) bool { return origin(r.URL) != first }
	if !foreign(req) && !slices.ContainsFunc(via, foreign) {
		return nil // never left, so nobody else can have decided where this goes
	}
	if req.Body != nil && req.Body != http.NoBody {
		return &Error{
			URL:    shown(u.String()),
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

// origin returns what two URLs have in common that are of one site.
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

// ErrTooLarge reports that a body has more bytes than are wanted.
var ErrTooLarge = errors.New("the answer is too large")

// ReadBody returns the body of a response, after decompression, and closes it. If there are more
// than limit bytes, it returns the first ones and an error that is [ErrTooLarge]. The context of
// the request ends it. For a body to be decompressed, the request must not set Accept-Encoding;
// one that is compressed nevertheless is an error.
func ReadBody(resp *http.Response, limit int64) ([]byte, error) {
	// The data was checked when it was read; an error of Close changes nothing.
	defer func() { _ = resp.Body.Close() }()
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	default:
		return nil, fmt.Errorf("the answer is compressed as %.20q, which was not asked for", encoding)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if int64(len(body)) > limit {
		return body[:limit], fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return body, err
}
