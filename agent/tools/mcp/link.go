package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"gateway/store/plaintext"
)

const (
	// legacyVersion is the newest version of the protocol with the old handshake.
	legacyVersion = "2025-11-25"

	maxMessage  = 16 << 20 // bytes of one message from a server
	maxListed   = 2_000    // tools that are read from a server
	maxCatalog  = 7 << 20  // bytes of these tools as JSON; two catalogs must fit into maxCache
	maxPages    = 100      // pages of a list
	closeTime   = 10 * time.Second
	maxLogEntry = 500 // characters of a log message from a server
)

// A link is one connection to a server.
type link struct {
	session *sdk.ClientSession
	ended   chan struct{} // closed when the connection can't be used any more

	// bind returns a context that also ends with the link.
	bind func(ctx context.Context) (context.Context, context.CancelFunc)
	stop func() // ends everything and waits

	once sync.Once
	err  error // the reason for the end; set before ended is closed
}

// fail marks the link as unusable, with the reason.
func (l *link) fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.ended)
	})
}

func (l *link) alive() bool { return !isClosed(l.ended) }

// close ends the link and waits for its goroutines.
func (l *link) close() {
	l.fail(errors.New("closed"))
	l.stop()
}

// A connection is the connection below a session: a process, or requests to an endpoint.
type connection struct {
	transport sdk.Transport

	// end ends the connection: gracefully after the session has ended, and otherwise at once. It
	// may be called several times. It returns when all resources are released.
	end func()

	// why adds to err, an error of the session, the details that only the carrier knows.
	why func(err error) error
}

// pieces reads what next returns, one piece after the other.
type pieces struct {
	next func() ([]byte, error) // it may return nothing
	rest []byte                 // of the present piece
}

func (r *pieces) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		var err error
		if r.rest, err = r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// A readCloser reads from one place and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}

// A meter slows down a server that sends very many requests and notifications. The library keeps
// in memory what it has not handled, however much that is, and for each request a goroutine until
// the answer is sent. A server need not read answers for up to writeTime. Answers of the server
// don't count, because the gateway has asked for them.
type meter struct{ requests, notifications, bytes *rate.Limiter }

// What a server may send in a second, and how much at once.
const (
	requestRate, requestBurst           = 50, 200
	notificationRate, notificationBurst = 2_000, 10_000
	byteRate, byteBurst                 = 4 << 20, 2 * maxMessage
)

func newMeter() *meter {
	return &meter{rate.NewLimiter(requestRate, requestBurst),
		rate.NewLimiter(notificationRate, notificationBurst), rate.NewLimiter(byteRate, byteBurst)}
}

// admit waits until a message may be passed on, or done is closed.
func (m *meter) admit(done <-chan struct{}, message []byte) {
	limit := m.requests
	decoded, err := jsonrpc.DecodeMessage(message)
	if request, ok := decoded.(*jsonrpc.Request); err == nil && !ok {
		return
	} else if err == nil && !request.IsCall() {
		limit = m.notifications
	}
	now := time.Now()
	wait := time.NewTimer(max(limit.ReserveN(now, 1).DelayFrom(now),
		m.bytes.ReserveN(now, min(len(message), byteBurst)).DelayFrom(now)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-done:
	}
}

// A dialer makes connections to one server.
type dialer struct {
	base
	stale chan<- struct{} // gets a token when the server reports that its tools changed

	// elicit handles a question of the server.
	elicit func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error)
}

// A readyFunc prepares the use of a new link. If it fails, the link is closed.
type readyFunc func(ctx context.Context, l *link) error

// connect makes a connection and calls ready with it. If the endpoint does not support streamable
// HTTP, connect tries the transport of old protocol versions, as the protocol requires.
func (s *dialer) connect(ctx context.Context, ready readyFunc) (*link, error) {
	l, err := s.attempt(ctx, ready)
	if err == nil || !lacksEndpoint(err) || ctx.Err() != nil {
		return l, err
	}
	s.status.update(func() { s.status.dialect.SSE = !s.status.dialect.SSE })
	l, other := s.attempt(ctx, ready)
	if other == nil {
		return l, nil
	}
	if s.status.dialect.SSE { // the error of streamable HTTP is more useful
		s.status.update(func() { s.status.dialect.SSE = false })
		other = err
	}
	return nil, other
}

// attempt starts the server, opens a session and calls ready.
func (s *dialer) attempt(ctx context.Context, ready readyFunc) (*link, error) {
	// The link ends in order, by its stop, and not with ctx.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var c *connection
	var err error
	if s.URL != "" {
		c, err = s.overHTTP(life)
	} else {
		c, err = s.startProcess(life)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	limit := s.startLimit()
	start, done := context.WithTimeout(ctx, limit)
	defer done()
	// The library sometimes waits without regard to ctx. Ending the carrier ends this.
	guard := context.AfterFunc(start, c.end)
	l, err := s.session(start, life, c)
	if err == nil {
		err = ready(start, l)
	}
	// guard reports false if the timeout has ended the carrier.
	inTime := guard()
	if err == nil && inTime {
		stop := l.stop
		l.stop = func() {
			stop()
			cancel()
		}
		return l, nil
	}
	if err == nil { // it became ready just after the timeout
		err = context.Cause(start)
	}
	err = c.why(err)
	if start.Err() != nil {
		err = fmt.Errorf("it was not ready within %s: %w", limit, err)
	}
	if l != nil {
		l.close()
	}
	cancel()
	c.end()
	return nil, err
}

// startLimit returns how long the start may take. It grows with each failure: npx and uvx first
// install a program, and some begin anew if they are ended before that.
func (s *dialer) startLimit() (limit time.Duration) {
	if s.URL != "" {
		return startTimeout
	}
	s.status.update(func() { limit = s.opts.start << min(s.status.failed, 16) })
	return min(limit, maxStart)
}

// session opens a session over c. Its goroutine ends with l.stop.
func (s *dialer) session(ctx, life context.Context, c *connection) (*link, error) {
	opts := &sdk.ClientSessionOptions{}
	s.status.update(func() {
		if s.status.dialect.Legacy || s.status.dialect.SSE {
			opts.ProtocolVersion = legacyVersion
		}
	})
	way := &opened{Transport: c.transport}
	session, err := s.client().Connect(ctx, way, opts)
	if err != nil {
		if way.conn != nil { // after some errors the library does not close it
			c.end()
			_ = way.conn.Close() // err is more important
		}
		return nil, err
	}
	life, cancel := context.WithCancel(life)
	l := &link{session: session, ended: make(chan struct{})}
	l.bind = func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, done := context.WithCancel(ctx)
		undo := context.AfterFunc(life, done)
		return ctx, func() {
			undo()
			done()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := session.Wait()
		if err == nil {
			err = errors.New("the server has ended the connection")
		}
		l.fail(c.why(err))
	})
	l.stop = func() {
		cancel() // calls in progress would delay the rest
		if s.URL == "" {
			c.end()
		}
		// For an endpoint, Close may send a request, so the connection ends after that.
		late := time.AfterFunc(closeTime, c.end)
		_ = session.Close() // the session is over in any case
		wg.Wait()
		late.Stop()
		c.end()
	}
	return l, nil
}

// An opened transport stores its connection.
type opened struct {
	sdk.Transport
	conn sdk.Connection
}

func (o *opened) Connect(ctx context.Context) (sdk.Connection, error) {
	var err error
	o.conn, err = o.Transport.Connect(ctx)
	return o.conn, err
}

// client returns the client for one session. It refuses all requests of a server except for those
// that ask a person.
func (s *dialer) client() *sdk.Client {
	stale := func() { notify(s.stale) } // all three lists are read again together
	c := sdk.NewClient(&sdk.Implementation{Name: "gateway", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{ // no roots
			Elicitation: &sdk.ElicitationCapabilities{
				Form: &sdk.FormElicitationCapabilities{}, URL: &sdk.URLElicitationCapabilities{}}},
		ElicitationHandler: s.elicit,
		MultiRoundTrip:     &sdk.MultiRoundTripOptions{Disabled: true}, // the turn does it

		ToolListChangedHandler:     func(context.Context, *sdk.ToolListChangedRequest) { stale() },
		PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { stale() },
		ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { stale() },
		//lint:ignore SA1019 servers of the versions before still use it
		LoggingMessageHandler: func(ctx context.Context, r *sdk.LoggingMessageRequest) {
			if r.Params != nil && s.opts.Logger.Enabled(ctx, slog.LevelDebug) {
				s.opts.Logger.DebugContext(ctx, "mcp server says", "server", s.Name,
					"level", oneLine(string(r.Params.Level), 20),
					"entry", plaintext.Shorten(s.redactor.scrub(fmt.Sprint(r.Params.Data)), maxLogEntry))
			}
		},
	})
	c.AddReceivingMiddleware(s.survive)
	return c
}

// survive makes the gateway survive messages of the server that would cost the library too much: a
// panic, on a goroutine of its own, or much time. It refuses a question before the library looks at
// it, and the end of one without parameters, for which a lock would stay behind.
func (s *dialer) survive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (result sdk.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.opts.Logger.ErrorContext(ctx, "mcp message panicked", "server", s.Name,
					"method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client failed"}
			}
		}()
		switch r := r.(type) {
		case *sdk.ElicitRequest:
			_, err = newRequest("", r.Params)
		case *sdk.ElicitationCompleteNotificationRequest:
			if r.Params == nil {
				err = errors.New("it has no parameters")
			}
		}
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		return next(ctx, method, r)
	}
}

// listCatalog returns a server's catalog with the tools that allows lets through.
func listCatalog(
	ctx context.Context, session *sdk.ClientSession, allows func(name string) bool,
) (catalog, error) {
	var c catalog
	has := &sdk.ServerCapabilities{}
	if r := session.InitializeResult(); r != nil && r.Capabilities != nil {
		has = r.Capabilities
	}
	if has.Tools != nil {
		if err := c.listTools(ctx, session, allows); err != nil {
			return c, err
		}
	}
	// If a server announces resources or prompts but can't list them, it has none.
	if has.Resources != nil {
		r, err := session.ListResources(ctx, &sdk.ListResourcesParams{})
		c.Resources = err == nil && len(r.Resources) > 0
		if !c.Resources {
			t, err := session.ListResourceTemplates(ctx, &sdk.ListResourceTemplatesParams{})
			c.Resources = err == nil && len(t.ResourceTemplates) > 0
		}
	}
	if has.Prompts != nil {
		p, err := session.ListPrompts(ctx, &sdk.ListPromptsParams{})
		c.Prompts = err == nil && len(p.Prompts) > 0
	}
	// Some errors above mean only that there is nothing. After the end of ctx they do not.
	return c.sorted(), ctx.Err()
}

// listTools adds the server's tools to c. It sets More if there are more than maxListed tools,
// maxCatalog bytes or maxPages pages.
func (c *catalog) listTools(
	ctx context.Context, session *sdk.ClientSession, allows func(name string) bool,
) error {
	params, left := &sdk.ListToolsParams{}, maxCatalog
	for range maxPages {
		page, err := session.ListTools(ctx, params)
		if err != nil {
			return err
		}
		for _, t := range page.Tools {
			if !allows(t.Name) {
				continue
			}
			d := describe(t)
			data, err := json.Marshal(d)
			if err != nil {
				return err
			}
			if left -= len(data) + 1; left < 0 || len(c.Tools) == maxListed {
				c.More = true
				return nil
			}
			c.Tools = append(c.Tools, d)
		}
		// A server that repeats its cursor would never come to an end.
		if page.NextCursor == "" || page.NextCursor == params.Cursor {
			return nil
		}
		params = &sdk.ListToolsParams{Cursor: page.NextCursor}
	}
	c.More = true
	return nil
}

// describe returns the definition of t. The title stands in for a missing description. The schema
// is repaired later.
func describe(t *sdk.Tool) definition {
	d := definition{Name: t.Name, Schema: t.InputSchema, Description: cmp.Or(
		oneLine(t.Description, maxDescription), oneLine(t.Title, maxDescription))}
	if a := t.Annotations; a != nil {
		d.ReadOnly, d.Idempotent = a.ReadOnlyHint, a.IdempotentHint
	}
	return d
}
