package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// headTime is how long the header of a response may take if the request has no deadline.
const headTime = 15 * time.Second

// overHTTP returns the carrier for the endpoint of s. Its requests end with life.
func (s *dialer) overHTTP(life context.Context) (*connection, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, errors.New("its URL is not valid")
	}
	sse := s.status.dialect.SSE // only the goroutine of run changes it
	life, cancel := context.WithCancel(life)
	client, m := *cmp.Or(s.HTTP, s.opts.HTTP), newMeter()
	client.Timeout = 0
	base := cmp.Or(client.Transport, http.DefaultTransport)
	client.Transport = doer(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		ours := r.URL.Host == u.Host && r.URL.Scheme == u.Scheme
		if sse && !ours {
			return nil, errors.New("it names an endpoint on another server")
		}
		if ours { // a redirect to another host gets no secrets
			for name, value := range s.Header {
				r.Header.Set(name, value)
			}
		}
		// Only the request of a call has a post. Others, such as those for notifications, have
		// none.
		p, _ := r.Context().Value(postKey{}).(*post)
		first := p != nil && r.Method == http.MethodPost && !p.begun.Swap(true)
		do := func(r *http.Request) (*http.Response, error) {
			resp, err := roundTrip(life, base, r, m)
			if err == nil && refusesSession(r, resp) {
				resp.StatusCode, resp.Status = http.StatusNotFound, "404 no such session"
			}
			return resp, err
		}
		send := do
		if ours {
			send = func(r *http.Request) (*http.Response, error) { return s.login.send(r, do) }
		}
		resp, err := send(r)
		if first && err == nil && r.Header.Get("Mcp-Session-Id") != "" {
			p.status.Store(int32(resp.StatusCode))
		}
		// A request with Last-Event-Id may continue the stream of a call.
		if !sse && err == nil && r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "" &&
			isStream(resp) {
			resp.Body = listen(r.Context().Done(), resp, func(last string) (*http.Response, error) {
				r := r.Clone(r.Context())
				if last != "" {
					r.Header.Set("Last-Event-Id", last)
				}
				return send(r)
			})
		}
		return resp, err
	})
	var transport sdk.Transport = &sdk.StreamableClientTransport{
		Endpoint: s.URL, HTTPClient: &client, MaxEventSize: maxMessage, MaxRetries: 2,
	}
	if sse {
		old := &sdk.SSEClientTransport{
			Endpoint: s.URL, HTTPClient: &client, MaxEventSize: maxMessage}
		transport = connector(func() (sdk.Connection, error) { return old.Connect(life) })
	}
	return &connection{transport: transport, end: cancel, why: s.refusal}, nil
}

// A connector is a transport whose stream outlives the context of Connect.
type connector func() (sdk.Connection, error)

// Connect implements sdk.Transport.
func (c connector) Connect(context.Context) (sdk.Connection, error) { return c() }

// lacksEndpoint reports whether err may mean that there is no endpoint of the transport at the URL.
// The protocol names these three statuses.
func lacksEndpoint(err error) bool {
	return answers(err, http.StatusNotFound) || answers(err, http.StatusMethodNotAllowed) ||
		answers(err, http.StatusBadRequest)
}

// refusesLogin reports whether err says that a request was refused because of its token.
func refusesLogin(err error) bool {
	return answers(err, http.StatusUnauthorized) || answers(err, http.StatusForbidden)
}

// answers reports whether err says that the response had the given status. The library puts only
// the status text into the error.
func answers(err error, status int) bool {
	return strings.Contains(err.Error(), http.StatusText(status))
}

// refusal returns err without the URL, with advice for people.
func (s *dialer) refusal(err error) error {
	err = withoutURL(err)
	switch {
	case s.login.problem() != "" && refusesLogin(err):
		return errors.New(s.login.problem())
	case answers(err, http.StatusUnauthorized):
		return fmt.Errorf("%w: it refuses the header Authorization of its configuration", err)
	case answers(err, http.StatusNotFound):
		return fmt.Errorf("%w: there is no endpoint of the protocol at this URL", err)
	}
	return err
}

// A post is the state of the first POST request of a call. The library may send another one, to
// cancel the call, with the same context.
type post struct {
	begun  atomic.Bool
	status atomic.Int32 // of the response, if the request had a session
}

// lostSession reports whether the endpoint may not know the session of the request that ended with
// err. Then it did nothing.
func (p *post) lostSession(err error) bool {
	switch p.status.Load() {
	case http.StatusNotFound:
		return true
	case http.StatusUnauthorized:
		// A challenge, too, may be about the session. If not, a new session gets it as well. But if
		// the endpoint answers the call, the library keeps the session, with all its calls.
		return !errors.Is(err, &jsonrpc.Error{Code: codeRejected})
	}
	return false
}

// maxRefusal is how many bytes of a response are searched for the reason of a refusal.
const maxRefusal = 64 << 10

// refusesSession reports whether the endpoint does not know the session of r. The protocol requires
// status 404, but many servers use 410, or use 400 or 401 and say so in the body. A status 401 with
// a challenge asks for a login instead.
func refusesSession(r *http.Request, resp *http.Response) bool {
	switch {
	case r.Header.Get("Mcp-Session-Id") == "":
		return false
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusGone:
		return true
	case resp.StatusCode == http.StatusBadRequest && r.Method == http.MethodPost:
	case resp.StatusCode == http.StatusUnauthorized && resp.Header.Get("WWW-Authenticate") == "":
	default:
		return false
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	resp.Body = readCloser{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	return err == nil && bytes.Contains(bytes.ToLower(head), []byte("session"))
}

// postKey is the context key of a call's post.
type postKey struct{}

// A doer is a function that implements http.RoundTripper.
type doer func(r *http.Request) (*http.Response, error)

func (d doer) RoundTrip(r *http.Request) (*http.Response, error) { return d(r) }

// roundTrip sends r, which ends with life, and limits the wait for the response's header. If a GET
// request for a stream of notifications times out, the server has no such stream, and roundTrip
// returns status 405. m slows down the response if that is a stream.
func roundTrip(
	life context.Context, base http.RoundTripper, r *http.Request, m *meter,
) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	undo := context.AfterFunc(life, cancel)
	done := func() {
		undo()
		cancel()
	}
	// A request with a deadline ends by itself.
	stop := func() bool { return true }
	if _, ok := r.Context().Deadline(); !ok {
		stop = time.AfterFunc(headTime, cancel).Stop
	}
	resp, err := base.RoundTrip(r.WithContext(ctx))
	inTime := stop()
	if err != nil || !inTime {
		done()
		if err == nil {
			err = errors.Join(errors.New("no answer in time"), resp.Body.Close())
		}
		// A request with Last-Event-Id continues a stream that the server has.
		if !inTime && r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "" {
			return &http.Response{
				StatusCode: http.StatusMethodNotAllowed, Status: "405 no stream", Request: r,
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
				Header: http.Header{}, Body: http.NoBody,
			}, nil
		}
		return nil, err
	}
	b := &body{ReadCloser: resp.Body, done: done, left: -1}
	if !isStream(resp) { // also if a refusal calls itself one: the library reads it to its end
		b.left = maxMessage
	} else {
		e := &events{lines: bufio.NewReader(resp.Body),
			admit: func(message []byte) { m.admit(ctx.Done(), message) }}
		b.ReadCloser = readCloser{&pieces{next: e.next}, resp.Body}
	}
	resp.Body = b
	return resp, nil
}

// A body is the body of a response, of which only a limited number of bytes is read. A stream of
// events has no bound, because its events have one of their own.
type body struct {
	io.ReadCloser
	done func()
	left int // bytes; less than 0: no bound
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxMessage)
	}
	if b.left > 0 {
		p = p[:min(len(p), b.left)]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= n
	}
	return n, err
}

func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// events is a stream whose events are passed on when they are complete and admitted.
type events struct {
	lines *bufio.Reader
	err   error // the end of the stream
	admit func(message []byte)
}

// next returns the next event, or the beginning of the last one if that is incomplete.
func (e *events) next() (event []byte, err error) {
	if e.err != nil {
		return nil, e.err
	}
	event, e.err = readEvent(e.lines)
	if data := dataOf(event); len(data) > 0 {
		e.admit(data)
	}
	return event, nil
}

// dataOf returns the data of an event.
func dataOf(event []byte) []byte {
	var data [][]byte
	for line := range bytes.Lines(event) {
		if name, value, _ := bytes.Cut(line, []byte(":")); string(name) == "data" {
			data = append(data, bytes.TrimSpace(value))
		}
	}
	return bytes.Join(data, []byte("\n"))
}

// readEvent reads up to the blank line that ends an event. It stops after maxMessage bytes, because
// the library refuses a larger event anyway. If it returns an error, the event is incomplete.
func readEvent(lines *bufio.Reader) (event []byte, err error) {
	for len(event) <= maxMessage {
		line, err := lines.ReadSlice('\n')
		blank := len(bytes.TrimRight(line, "\r\n")) == 0 &&
			(len(event) == 0 || event[len(event)-1] == '\n')
		event = append(event, line...)
		switch {
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return event, err
		case err == nil && blank:
			return event, nil
		}
	}
	return event, nil
}

// The waits before a stream of notifications is opened again.
const (
	shortestWait = time.Second
	longestWait  = time.Minute
)

// A listener is the body of an endpoint's stream of notifications, over all the responses that it
// takes. The endpoint may close the stream whenever it likes, and proxies close it after some quiet
// minutes. But the library gives up the whole connection, with all calls underway, after a few
// responses without an id. See https://github.com/modelcontextprotocol/go-sdk/issues/1175.
type listener struct {
	pieces
	done <-chan struct{} // closed at the end of the connection
	get  func(last string) (*http.Response, error)
	body io.ReadCloser // of the newest response

	lines *bufio.Reader // reads body
	last  string        // id of the newest event that has one
	least time.Duration // before the next response, as the endpoint asks
	wait  time.Duration // before the newest response; 0: it has had an event
}

// listen returns the body of a stream that begins with resp. If it ends before done is closed, get
// requests what follows the event with the id last.
func listen(
	done <-chan struct{}, resp *http.Response, get func(last string) (*http.Response, error),
) *listener {
	l := &listener{done: done, get: get, least: shortestWait}
	l.pieces.next = l.next
	l.open(resp.Body)
	return l
}

func (l *listener) open(body io.ReadCloser) {
	l.body, l.lines = body, bufio.NewReader(body)
}

// next returns the next event. It returns complete events only, so that what follows an interrupted
// one does not become a part of it.
func (l *listener) next() ([]byte, error) {
	event, err := readEvent(l.lines)
	if err != nil {
		return nil, l.reopen()
	}
	l.wait = 0
	l.note(event)
	return event, nil
}

// note remembers from where the endpoint can continue after event, and when.
func (l *listener) note(event []byte) {
	for line := range bytes.Lines(event) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch text := string(bytes.TrimSpace(value)); string(name) {
		case "id":
			l.last = text
		case "retry":
			if ms, err := strconv.ParseInt(text, 10, 32); err == nil {
				l.least = min(max(time.Duration(ms)*time.Millisecond, shortestWait), longestWait)
			}
		}
	}
}

// reopen requests the stream again until the endpoint agrees. It returns an error if the endpoint
// is out of order or does not know the session: the library finds out the same.
func (l *listener) reopen() error {
	_ = l.body.Close() // the stream has ended
	for {
		l.wait = min(max(2*l.wait, l.least), longestWait)
		select {
		case <-time.After(l.wait):
		case <-l.done:
			return context.Canceled
		}
		resp, err := l.get(l.last)
		switch {
		case err != nil:
			return err
		case isStream(resp):
			l.open(resp.Body)
			return nil
		}
		_ = resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode == http.StatusNotFound || resp.StatusCode >= 500 {
			return io.EOF
		}
	}
}

// Close implements io.Closer.
func (l *listener) Close() error { return l.body.Close() }

// isStream reports whether resp is a stream of events.
func isStream(resp *http.Response) bool {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode == http.StatusOK && t == "text/event-stream"
}

// ownIssuer returns a transport that uses base. In protocol version 2025-03-26, servers are their
// own authorization servers, and their metadata at the root may name a path of the server as the
// issuer. RFC 8414 requires both names to be equal. ownIssuer replaces the issuer by the root,
// which is safe because both are on the same host.
func ownIssuer(base http.RoundTripper, server string) doer {
	u, err := url.Parse(server)
	if err != nil {
		return base.RoundTrip
	}
	root := u.Scheme + "://" + u.Host
	return func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err != nil || r.URL.String() != root+"/.well-known/oauth-authorization-server" ||
			resp.StatusCode != http.StatusOK {
			return resp, err
		}
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		var meta map[string]any
		if err == nil && json.Unmarshal(data, &meta) == nil {
			if issuer, _ := meta["issuer"].(string); strings.HasPrefix(issuer, root+"/") {
				meta["issuer"] = root
				if data, err = json.Marshal(meta); err != nil {
					return nil, errors.Join(err, resp.Body.Close())
				}
			}
		}
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		return resp, nil
	}
}

// withoutURL returns the error of a request without its URL, which may be secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
